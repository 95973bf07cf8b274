"""Planted bugs in the nodes and in the store below them, each with the tests that must notice it."""

from __future__ import annotations

from typing import NamedTuple


class NodeMutant(NamedTuple):
    name: str
    file: str  # below src/paceline
    old: str
    new: str
    tests: str  # what to run


NODE_MUTANTS = [
    NodeMutant(
        "updates do not mind readers",
        "params/store.py",
        "if not self._readers[self._live]:\n            return self._live\n",
        "if True:\n            return self._live\n",
        "tests/nodes/test_atomic_pulls.py",
    ),
    NodeMutant(
        "a round is divided by one too many",
        "params/round.py",
        "Scale.of_mean(count, exact",
        "Scale.of_mean(count + 1, exact",
        "tests/nodes/test_updates.py",
    ),
    NodeMutant(
        "sums are made in any order",
        "nodes/shard_host.py",
        "deterministic=job.deterministic",
        "deterministic=False",
        "tests/nodes/test_equality.py",
    ),
    NodeMutant(
        "LARS sees parts of tensors only",
        "nodes/norm_exchange.py",
        "Norms.total(parts[shard] for shard in sorted(parts))",
        "parts.get(self.shard, Norms())",
        "tests/nodes/test_equality.py",
    ),
    NodeMutant(
        "a gradient's memory is free before it is summed",
        "nodes/shard_host.py",
        "            self.store.absorb(gradient.key)\n            gradient.free()",
        "            gradient.free()",
        "tests/nodes/test_updates.py",
    ),
    NodeMutant(
        "a refused gradient is not told",
        "nodes/line.py",
        'if self.push.answer or outcome != "applied":',
        "if self.push.answer:",
        "tests/nodes/test_failures.py",
    ),
    NodeMutant(
        "an immediate update is not shared among the workers",
        "nodes/shard_host.py",
        "1 / max(self.machine.view.live, 1)",
        "1.0",
        "tests/nodes/test_updates.py",
    ),
    NodeMutant(
        "commands do not wait for a buffer",
        "params/store.py",
        "return not (self._readers[0] and self._readers[1])",
        "return True",
        "tests/nodes/test_atomic_pulls.py",
    ),
    NodeMutant(
        "payloads of any size land",
        "nodes/shard_host.py",
        "if line is None or size != self.nbytes:",
        "if line is None:",
        "tests/nodes/test_server.py",
    ),
    NodeMutant(
        "any life of a worker may connect",
        "nodes/server.py",
        "if self._members.get(member.worker) != member:",
        "if member.worker not in self._members:",
        "tests/nodes/test_server.py",
    ),
    NodeMutant(
        "a lost server goes unnoticed",
        "nodes/membership.py",
        'if peer.role == "server":\n            return self._end(',
        'if peer.role == "server":\n            return [] and self._end(',
        "tests/nodes/test_membership.py",
    ),
    NodeMutant(
        "the barrier lets the fastest pass",
        "nodes/membership.py",
        "at = min((self._barrier.get(link, -1)",
        "at = max((self._barrier.get(link, -1)",
        "tests/nodes/test_membership.py",
    ),
    NodeMutant(
        "a joiner has its first life again",
        "nodes/membership.py",
        "peer.incarnation = self._lives.get(peer.number, -1) + 1",
        "peer.incarnation = self._lives.get(peer.number, 0)",
        "tests/nodes/test_membership.py",
    ),
    NodeMutant(
        "another model is let in",
        "nodes/membership.py",
        "wrong = other.described and difference(reference, other.described)",
        "wrong = None",
        "tests/nodes/test_membership.py",
    ),
    NodeMutant(
        "elastic models may be on one shard",
        "nodes/membership.py",
        "if change.shard is not None and len(self._places) > 1:",
        "if False:",
        "tests/nodes/test_membership.py",
    ),
    NodeMutant(
        "a worker goes on before its parameters are there",
        "nodes/replica.py",
        "        if payload is not None and payload is not self._views[shard]:",
        "        if False:",
        "tests/nodes/test_updates.py",
    ),
    NodeMutant(
        "what is read in place is given back at once",
        "nodes/replica.py",
        "                self._lent[shard] = incoming\n                return\n",
        "",
        "tests/nodes/test_atomic_pulls.py",
    ),
    NodeMutant(
        "the worker's pump never turns",
        "nodes/pump.py",
        "            self._alone = True\n",
        "            self._alone = False\n",
        "tests/nodes/test_worker.py",
    ),
    NodeMutant(
        "a snapshot changes while it is sent",
        "nodes/shard_host.py",
        "{name: row.clone() for name, row in state.items() if row.dim()}",
        "{name: row for name, row in state.items() if row.dim()}",
        "tests/nodes/test_snapshot.py",
    ),
    NodeMutant(
        "training goes on before a snapshot is taken",
        "nodes/snapshot.py",
        "            self._wait(lambda: len(self._saved) == len(self._places))\n        except",
        "            pass\n        except",
        "tests/nodes/test_snapshot.py",
    ),
    NodeMutant(
        "a run that goes on forgets how many iterations there were",
        "nodes/shard_host.py",
        "self._origin = initial.clock",
        "self._origin = 0",
        "tests/nodes/test_snapshot.py",
    ),
    NodeMutant(
        "a run that goes on forgets what the optimizer remembers",
        "params/updater.py",
        "            mine.copy_(state[name])\n",
        "            pass\n",
        "tests/nodes/test_snapshot.py",
    ),
    # Partial pulling.
    NodeMutant(
        "a late block is put in place while the worker computes",
        "nodes/worker.py",
        "        return not (self._machine.waits_for_all and self._machine.is_new(message.shard, message.next))\n",
        "        return False\n",
        "tests/nodes/test_partial_pulls.py",
    ),
    NodeMutant(
        "an old block replaces a newer one",
        "nodes/worker.py",
        "        if not new:\n            incoming.release()\n",
        "        if False:\n            incoming.release()\n",
        "tests/nodes/test_partial_pulls.py",
    ),
    NodeMutant(
        "a block that was set aside replaces a newer one that was not",
        "nodes/replica.py",
        "        self.aside.forget(shard)\n",
        "",
        "tests/nodes/test_partial_pulls.py",
    ),
    NodeMutant(
        "a block lands on one that is complete",
        "nodes/aside.py",
        "        row = self._coming[shard]\n        if row is None:\n",
        "        row = self._coming[shard] = self._complete[shard]\n        if row is None:\n",
        "tests/nodes/test_aside.py",
    ),
    NodeMutant(
        "a worker reads in place what it may need for longer",
        "nodes/worker.py",
        "lasting=message.pull is not None",
        "lasting=False",
        "tests/nodes/test_partial_pulls.py",
    ),
    NodeMutant(
        "a worker goes on before its gradient is taken",
        "nodes/worker.py",
        "return self._next is not None and not (self._owed and self._sending)",
        "return self._next is not None",
        "tests/nodes/test_partial_pulls.py",
    ),
    NodeMutant(
        "the shard that wants least is heard",
        "sync/worker.py",
        "*max(self._shares)",
        "*min(self._shares)",
        "tests/nodes/test_partial_pulls.py",
    ),
    NodeMutant(
        "a worker is not woken when it has waited long enough",
        "nodes/worker.py",
        "                    self._loop.call_at(at, partial(self._timer_fired, timer))",
        "                    pass",
        "tests/nodes/test_partial_pulls.py",
    ),
    NodeMutant(
        "a late answer keeps a buffer",
        "nodes/shard_host.py",
        "copied = memoryview(bytearray(self.store.values.numpy().view(np.uint8).data))",
        "copied = self.segments[self.store.lend()].view",
        "tests/nodes/test_partial_pulls.py",
    ),
    NodeMutant(
        "a late answer is of when it is sent",
        "nodes/shard_host.py",
        "copied = memoryview(bytearray(self.store.values.numpy().view(np.uint8).data))",
        "copied = self.segments[0].view",
        "tests/nodes/test_partial_pulls.py",
    ),
    NodeMutant(
        "a worker has one gradient in a round at most",
        "params/round.py",
        "(self._seen if self._ordered else self.pending)",
        "self._seen",
        "tests/nodes/test_partial_pulls.py",
    ),
    NodeMutant(
        "linear scaling is by the number of gradients",
        "params/store.py",
        "gathered.summed / of if of else",
        "gathered.summed if of else",
        "tests/nodes/test_equality.py",
    ),
]
