"""A trace: every event that the shards of a process were handed, with its time, and what they answered, and why.

    with Trace("server-0.trace", [ShardSetup("ssp(s=3)", workers=4)]) as trace:
        commands = shard.handle(event, now)
        trace.record(0, now, event, commands)

The file is a mark that says what it is, and then records, each with its size before it. The first record says how to
build the shards again, so `paceline.observe.replay` can hand them the same events and compare. A process that is killed
leaves a file that is whole up to some record; what is left of the next one is told as `Recording.cut`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from struct import Struct as Layout
from threading import Lock
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

from msgspec import DecodeError, Meta, Struct, msgpack

from paceline.sync import Command, Event, Joined, Left, Pulled, Pushed, SetModel, Shard, TimerFired, parse
from paceline.sync.models.base import UpdateRule

MARK = b"paceline trace\n"
VERSION = 1
LARGEST = 16 << 20  # how many bytes a record may have; one that answers 10 000 held pulls has 600 KB
MOST = 1_000_000  # how many workers a shard may start with
FLUSH_BYTES = 64 << 10
FLUSH_SECONDS = 1.0  # of the time that is recorded

SIZE = Layout(">I")
NO_SIZE = bytes(SIZE.size)

Workers = Annotated[int, Meta(ge=0, le=MOST)] | Annotated[tuple[int, ...], Meta(max_length=MOST)]


class TraceError(ValueError):
    """A trace that cannot be written, or a file that cannot be read as one."""


class ShardSetup(Struct, frozen=True):
    """All that is needed to build a shard, and to build it again."""

    model: str
    workers: Workers
    seed: int = 0
    index: int = 0
    update: UpdateRule | None = None

    def build(self) -> Shard:
        return Shard(self.model, self.workers, self.seed, index=self.index, update=self.update)


class Record(NamedTuple):
    """One event, and what its shard answered."""

    shard: int
    now: float
    event: Event
    commands: list[Command]


class Cut(Struct, frozen=True):
    """The file ends within a record, `there` of whose bytes, its size included, are left from `offset` on."""

    record: int
    offset: int
    there: int

    def __str__(self) -> str:
        return f"the file ends within record {self.record}, {self.there} bytes after offset {self.offset}"


class Trace:
    """Writes a trace to a path, which it replaces, or to an open binary file. Any thread may record.

    Records reach the file when there are enough of them, or with the first one after a second.
    """

    def __init__(self, to: str | os.PathLike[str] | BinaryIO, shards: Iterable[ShardSetup]) -> None:
        setups = list(shards)
        self._shards = {setup.index for setup in setups}
        self._to = to
        self._file: BinaryIO | None = None
        self._due = -inf  # so the first record finds out whether the trace is open
        self._lock = Lock()
        self._encode_into = msgpack.Encoder().encode_into
        self._buffer = bytearray(MARK)
        if len(self._shards) != len(setups):
            raise TraceError(f"two shards have the same index, in {setups}")
        self._append(Header(VERSION, setups))

    def start(self) -> None:
        """Open the file, and write how to build the shards again."""
        self._file = _open(self._to, "wb") if isinstance(self._to, str | os.PathLike) else self._to
        self.flush()

    def record(self, shard: int, now: float, event: Event, commands: Sequence[Command]) -> None:
        """Note that this shard was handed this event and answered with these commands."""
        if shard not in self._shards:
            raise TraceError(f"shard {shard!r} is not one of this trace's, {sorted(self._shards)}")
        if type(event) is SetModel:
            event = SetModel(str(parse(event.model)))
        with self._lock:
            self._append((shard, now, event, commands))
            if len(self._buffer) >= FLUSH_BYTES or now >= self._due:
                self._flush()
                self._due = now + FLUSH_SECONDS

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def close(self) -> None:
        """Write what is left. The file is closed if it was opened here."""
        with self._lock:
            if self._file is not None:
                self._flush()
                self._forget_file()

    def __enter__(self) -> Trace:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, record: object) -> None:
        buffer = self._buffer
        start = len(buffer)
        buffer += NO_SIZE
        try:
            self._encode_into(record, buffer, -1)
        except (TypeError, OverflowError) as error:
            del buffer[start:]
            raise TraceError(f"{record!r} cannot be written: {error}") from error
        size = len(buffer) - start - SIZE.size
        if size > LARGEST:
            del buffer[start:]
            raise TraceError(f"a record of {size} bytes cannot be written, {LARGEST} at most")
        SIZE.pack_into(buffer, start, size)

    def _flush(self) -> None:
        if self._file is None:
            raise TraceError("the trace is not open; start it before the first record, and close it after the last")
        try:
            self._file.write(self._buffer)
            self._file.flush()
        except OSError as error:
            self._forget_file()
            raise TraceError(f"cannot write the trace: {error}") from error
        finally:
            self._buffer.clear()

    def _forget_file(self) -> None:
        file, self._file, self._due = self._file, None, -inf
        if file is not None and file is not self._to:
            try:
                file.close()
            except OSError as error:
                raise TraceError(f"cannot write the trace: {error}") from error


class Recording:
    """A trace that can be read, any number of times. `cut` is known once it has been read to its end."""

    def __init__(self, path: str | os.PathLike[str], shards: Sequence[ShardSetup], begin: int) -> None:
        self.path = os.fspath(path)
        self.shards = shards
        self.cut: Cut | None = None
        self._begin = begin

    def __iter__(self) -> Iterator[Record]:
        known = {setup.index for setup in self.shards}
        with _open(self.path) as file:
            file.seek(self._begin)
            for number, (offset, data) in enumerate(self._records(file), 1):
                where = f"record {number} at offset {offset}"
                record = _decode(RECORD, data, f"{self.path}: {where}")
                if record.shard not in known:
                    raise TraceError(f"{self.path}: {where} is of shard {record.shard}; there are {sorted(known)}")
                if isinstance(record.event, NewModel):
                    record = record._replace(event=SetModel(record.event.model))
                yield Record._make(record)

    def _records(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        number, offset = 1, self._begin
        while True:
            data, there = _one(file, f"{self.path}: record {number} at offset {offset}")
            if data is None:
                self.cut = Cut(number, offset, there) if there else None
                return
            yield offset, data
            number, offset = number + 1, offset + there


def read(path: str | os.PathLike[str]) -> Recording:
    """Open a trace. What is wrong with a record is told when the reading gets there."""
    with _open(path) as file:
        mark = file.read(len(MARK))
        if mark != MARK:
            raise TraceError(f"{path} is no trace: it begins with {mark!r}, not with {MARK!r}")
        where = f"{path}: the header at offset {len(MARK)}"
        data, size = _one(file, where)
        if data is None:
            raise TraceError(f"{where} is cut off; {size} of its bytes are there")
        version = _decode(ANY_HEADER, data, where).version
        if version != VERSION:
            raise TraceError(f"{path} is a trace of version {version}; this program reads version {VERSION}")
        shards = _decode(HEADER, data, where).shards
        if len({setup.index for setup in shards}) != len(shards):
            raise TraceError(f"{where} has two shards of the same index")
        return Recording(path, shards, len(MARK) + size)


# The form on disk.


class AnyHeader(Struct):
    """What is the same in the header of every version."""

    version: int


class Header(AnyHeader):
    shards: list[ShardSetup]


class NewModel(Struct, frozen=True, array_like=True, tag="SetModel"):
    """`SetModel` as it is written: the model as its expression."""

    model: str


class Written(NamedTuple):
    """A record as it is written."""

    shard: int
    now: float
    event: Pushed | Pulled | Joined | Left | TimerFired | NewModel
    commands: list[Command]


ANY_HEADER = msgpack.Decoder(AnyHeader)
HEADER = msgpack.Decoder(Header)
RECORD = msgpack.Decoder(Written)


def _open(path: str | os.PathLike[str], mode: Literal["rb", "wb"] = "rb") -> BinaryIO:
    try:
        return open(path, mode)
    except OSError as error:
        raise TraceError(f"cannot {'read' if mode == 'rb' else 'write'} the trace: {error}") from error


def _one(file: BinaryIO, where: str) -> tuple[bytes | None, int]:
    """The next record, if all of it is there, and how many bytes there are of it and its size."""
    head = file.read(SIZE.size)
    if len(head) < SIZE.size:
        return None, len(head)
    (size,) = SIZE.unpack(head)
    if size > LARGEST:
        raise TraceError(f"{where} says that it has {size} bytes; there are {LARGEST} at most")
    data = file.read(size)
    return (data if len(data) == size else None), SIZE.size + len(data)


def _decode(decoder: msgpack.Decoder[Any], data: bytes, where: str) -> Any:
    try:
        return decoder.decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{where} cannot be read: {error}") from error
