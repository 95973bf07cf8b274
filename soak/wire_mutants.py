"""Planted bugs in the wires, each of which some test of them must notice."""

from __future__ import annotations

from soak.mutants import Mutant

WIRE_MUTANTS = [
    # Frames and queues.
    Mutant("any magic will do", "frames.py", "if magic != MAGIC or zero or limit is None", "if limit is None"),
    Mutant("payloads of any size", "frames.py", "length > limit[0] or size > limit[1]", "length > limit[0]"),
    Mutant("headers of any size", "frames.py", "length > limit[0] or size", "size"),
    Mutant(
        "a part of a frame is forgotten",
        "frames.py",
        "            self._start, self.stop = 0, here",
        "            self._start, self.stop = 0, self.stop",
    ),
    Mutant("any sink will do", "frames.py", "if target.nbytes != size or target.readonly:", "if False:"),
    Mutant(
        "a descriptor is not sent",
        "outbox.py",
        "if buffers else ([data], descriptor)",
        "if buffers else ([data], None)",
    ),
    Mutant(
        "descriptors are left open",
        "outbox.py",
        "            _close(descriptor)\n            if done",
        "            if done",
    ),
    Mutant("the queue only grows", "outbox.py", "            self.held -= held\n", ""),
    # Segments.
    Mutant("readers may write", "segment.py", "STEADY | SEAL_FUTURE_WRITE", "STEADY"),
    Mutant("segments may shrink", "segment.py", "    if seals & STEADY != STEADY:", "    if False:"),
    Mutant("segments have any size", "segment.py", "    if there != size:", "    if there < size:"),
    Mutant(
        "every view is kept", "segment.py", "            if len(self._parts) == MOST_PARTS:", "            if False:"
    ),
    Mutant(
        "a closed segment is kept",
        "segment.py",
        "        self._forget()\n        if self.fd >= 0:",
        "        if self.fd >= 0:",
    ),
    # Handshake.
    Mutant("any protocol will do", "handshake.py", "if message.protocol != self._protocol:", "if False:"),
    Mutant("any token will do", "handshake.py", "if not hmac.compare_digest(proof, expected):", "if False:"),
    Mutant("any configuration will do", "handshake.py", "if message.config != self._config:", "if False:"),
    Mutant(
        "a proof can be handed back", "handshake.py", 'b"paceline " + side.encode() + nonces', 'b"paceline " + nonces'
    ),
    Mutant("a proof can be used again", "handshake.py", "side.encode() + nonces + digests", "side.encode() + digests"),
    Mutant("text that is none ends the node", "headers.py", ", UnicodeDecodeError", ""),
    Mutant("nesting without end ends the node", "headers.py", ", RecursionError", ""),
    Mutant(
        "a handshake takes for ever",
        "greeting.py",
        "loop.call_at(deadline, self._late)",
        "loop.call_at(1e9, self._late)",
    ),
    Mutant("a crowd takes all memory", "listener.py", "if len(self._greetings) >= MOST_GREETINGS:", "if False:"),
    Mutant("the last comer goes first", "listener.py", "next(iter(self._greetings))", "list(self._greetings)[-1]"),
    Mutant(
        "no descriptors, no rest",
        "listener.py",
        "                self._exhausted(loop)\n",
        '                loop.counters["no descriptors"] += 1\n',
    ),
    # Loop.
    Mutant("an overdue timer waits for ever", "loop.py", "return timeout if timeout > 0 else 0.0", "return timeout"),
    Mutant("cancelled timers pile up", "loop.py", "if len(timers) > MOST_CANCELLED and", "if False and"),
    Mutant("it never falls asleep", "loop.py", "until = begun + min(patience, BRIEF)", "until = begun + patience"),
    # Channels.
    Mutant(
        "a resumed channel stays as it is",
        "channel.py",
        "        if self._paused and self._loop is not None:\n            self._loop.call_soon(self._go_on)\n",
        "",
    ),
    Mutant("nothing is counted", "channel.py", "            loop.counters[error.cause] += 1\n", ""),
    Mutant("the peer is not told why", "channel.py", "            self._part(error.why)", "            self._end()"),
    Mutant(
        "done before a loop is there is lost",
        "channel.py",
        "        for done in self._finished:\n            loop.call_soon(done)\n",
        "",
    ),
    Mutant("errors name nobody", "channel.py", "        error.peer = error.peer or self.peer\n", ""),
    Mutant("messages overtake", "stream.py", "if not self._outbox.queued and not self._ended:", "if not self._ended:"),
    Mutant("a slow reader is fed for ever", "stream.py", "self._outbox.held > self.limits.queued and", "False and"),
    Mutant("payloads start again", "stream.py", "payload[max(0, -rest) :]", "payload"),
    Mutant("bulk counts as held", "stream.py", "payload.nbytes if payload.nbytes <= SMALL else 0", "payload.nbytes"),
    Mutant("small payloads are not held", "stream.py", "payload.nbytes if payload.nbytes <= SMALL else 0", "0"),
    Mutant(
        "done within send",
        "stream.py",
        "        elif done is not None:\n            self._tell([done])",
        "        elif done is not None:\n            done()",
    ),
    Mutant("a bulk transfer takes all turns", "stream.py", "not self._taking or turn <= 0 or", "not self._taking or"),
    Mutant(
        "two that leave wait for each other",
        "stream.py",
        '            if self._state == "closing":\n                self._hang_up()\n',
        "",
    ),
    Mutant("closed channels keep their memory", "stream.py", "        self._reader.close()\n", ""),
    Mutant(
        "a paused channel does not learn of the end",
        "stream.py",
        "        elif self._paused:\n            self.resume()\n",
        "",
    ),
    # TCP.
    Mutant("memory is given up while it is used", "tcp.py", "            move.over.wait()", "            pass"),
    Mutant("a broken payload counts as whole", "tcp.py", "        elif self._reader.rest:", "        elif False:"),
    Mutant("threads are left behind", "loop.py", "        self._movers.close()\n", ""),
    # Shared memory.
    Mutant("references reach behind the end", "shared_memory.py", "if offset + size > there.size:", "if False:"),
    Mutant("released twice", "shared_memory.py", "self._lent.pop(number)", "self._lent[number]"),
    Mutant("descriptors are collected", "shared_memory.py", "len(self._descriptors) > 1", "False"),
    Mutant(
        "descriptors stay open",
        "shared_memory.py",
        "        for descriptor in self._descriptors:\n            os.close(descriptor)\n",
        "",
    ),
    Mutant("segments without number", "shared_memory.py", "if len(self._theirs) >= self.limits.segments or ", "if "),
    Mutant(
        "what is lent is lost at the end",
        "shared_memory.py",
        " + [done for done in self._lent.values() if done is not None]",
        "",
    ),
    Mutant("withdrawn segments count", "shared_memory.py", "        self._their_bytes -= segment.size\n", ""),
    Mutant("addresses are used again", "shared_memory.py", "segment.view[:]", "memoryview(bytearray(segment.view))"),
    # TLS.
    Mutant(
        "deciphered bytes are forgotten",
        "tls.py",
        "        super()._go_on()\n        self._read()\n",
        "        super()._go_on()\n",
    ),
    Mutant("deciphered bytes wait for more", "tls.py", "return self._sock.pending()", "return 0"),
    Mutant(
        "deciphered bytes have no turn",
        "tls.py",
        "            self._loop.call_soon(self._read)\n",
        "            pass\n",
    ),
    Mutant(
        "any certificate will do",
        "tls.py",
        "context.verify_mode = ssl.CERT_REQUIRED",
        "context.check_hostname = False\n        context.verify_mode = ssl.CERT_NONE",
    ),
    Mutant(
        "sent bytes are sent again",
        "tls.py",
        "            if not sent:\n                raise BlockingIOError from None",
        "            raise BlockingIOError from None",
    ),
    Mutant("a write waits for ever", "tls.py", "            self._write_needs_read = False\n", ""),
    # References.
    Mutant("a release waits for a message", "shared_memory.py", "self._loop.call_soon(self._send_releases)", "pass"),
    Mutant(
        "a release is sent again",
        "stream.py",
        'frame, self._along = self._along + frame, b""',
        "frame = self._along + frame",
    ),
    Mutant(
        "releases do not wait for each other",
        "shared_memory.py",
        "        if self._loop is None:\n            self._send_releases()",
        "        self._send_releases()",
    ),
    # Networks.
    Mutant("open to everyone", "network.py", "if not is_loopback(bind) and token is None:", "if False:"),
    Mutant("all hosts are one", "network.py", " and address.host_id == host_id()", ""),
    Mutant(
        "a full waiting room is waited for",
        "network.py",
        "                if self.clock() >= deadline:",
        "                if False:",
    ),
    # Memory.
    Mutant("receipts are lost", "memory.py", "            self._other._receipts.append(item)\n", ""),
    Mutant("a slow thread is fed for ever", "memory.py", "if self._held > self.limits.queued:", "if False:"),
]
