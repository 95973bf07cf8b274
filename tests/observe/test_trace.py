"""What is recorded can be read again, also after a crash, and nothing else passes for a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from random import Random
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from typer.testing import CliRunner

from paceline.cli import app
from paceline.observe import ShardSetup, Trace, TraceError, read, replay
from paceline.observe import trace as format_
from paceline.sync import Event, Joined, Left, Pulled, Pushed, SetModel, Stop, TimerFired, parse
from tests.effort import cases
from tests.observe.runs import ALL, EveryOther, run_with_everything


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.trace"


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "a.trace"
    run_with_everything(path)
    return path


# Reading and writing.

EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Pushed, *[st.integers(0, 2**63 - 1)] * 3, st.none() | st.integers(0, 9), st.floats(), st.none()),
    st.builds(
        Pulled, st.integers(0, 9), st.integers(-1, 9), st.integers(0, 9), st.builds(Stop, st.just(1), st.just(2))
    ),
    st.builds(Joined, st.integers(0, 9), st.integers(0, 9), st.none() | st.integers(0, 9)),
    st.builds(Left, st.integers(0, 9), st.none() | st.integers(0, 9)),
    st.builds(TimerFired, st.integers(0, 9)),
    st.sampled_from(ALL).map(lambda expression: SetModel(str(parse(expression)))),
)


@given(events=st.lists(st.tuples(st.integers(0, 1), st.floats(), EVENTS), max_size=20))
@settings(max_examples=cases(100), deadline=None)
def test_what_is_recorded_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, float, Event]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "a.trace"
    setups = [ShardSetup("ssp(s=3)", (0, 5), 7, index, "round") for index in range(2)]
    shard = setups[0].build()
    told = [(index, now, event, shard.handle(event, now)) for index, now, event in events]
    with Trace(path, setups) as trace:
        for one in told:
            trace.record(*one)
    recording = read(path)
    assert recording.shards == setups
    for _ in range(2):
        assert repr([tuple(record) for record in recording]) == repr(told)  # NaN is not itself, but reads the same


def test_an_open_file_is_written_and_left_open() -> None:
    file = BytesIO()
    with Trace(file, [ShardSetup("bsp", 1)]) as trace:
        trace.record(0, 0.0, TimerFired(1), [])
    assert file.getvalue().startswith(format_.MARK)


def test_records_reach_the_file_when_there_are_enough_or_a_second_has_passed(path: Path) -> None:
    def there() -> int:
        return len(list(read(path)))

    with Trace(path, [ShardSetup("bsp", 1)]) as trace:
        trace.record(0, 0.0, TimerFired(1), [])
        assert there() == 1
        trace.record(0, 0.5, TimerFired(2), [])
        assert there() == 1
        trace.record(0, 1.1, TimerFired(3), [])
        assert there() == 3
        for _ in range(format_.FLUSH_BYTES // 10):
            trace.record(0, 1.2, TimerFired(4), [])
        assert there() > 100
        trace.record(0, 1.3, TimerFired(5), [])
        trace.flush()
        assert list(read(path))[-1].event == TimerFired(5)


def test_several_threads_may_record(path: Path) -> None:
    def work(shard: int) -> None:
        for number in range(2000):
            trace.record(shard, 0.0, TimerFired(number), [])

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Trace(path, [ShardSetup("bsp", 1, index=index) for index in range(4)]) as trace:
            threads = [Thread(target=work, args=(shard,)) for shard in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
    finally:
        sys.setswitchinterval(usual)
    records = list(read(path))
    for shard in range(4):
        assert [r.event for r in records if r.shard == shard] == [TimerFired(number) for number in range(2000)]


def test_a_killed_process_leaves_a_file_that_is_whole_up_to_some_record(path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from paceline.observe import ShardSetup, Trace\n"
        "from paceline.sync import Pulled\n"
        "setup = ShardSetup('bsp', 1)\n"
        "shard, trace = setup.build(), Trace(sys.argv[1], [setup])\n"
        "trace.start()\n"
        "for number in range(5000):\n"
        "    trace.record(0, 0.0, Pulled(0, -1), shard.handle(Pulled(0, -1), 0.0))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=60)
    result = replay(read(path))
    assert result.same
    assert 1000 < result.events < 5000


@given(share=st.floats(0, 1))
@settings(max_examples=cases(60), deadline=None)
def test_a_file_that_ends_early_is_read_up_to_its_last_whole_record(
    tmp_path_factory: pytest.TempPathFactory, run_path: Path, share: float
) -> None:
    whole, data = list(read(run_path)), run_path.read_bytes()
    begin = read(run_path)._begin
    path = tmp_path_factory.mktemp("cut") / "a.trace"
    size = begin + round(share * (len(data) - begin))
    path.write_bytes(data[:size])
    recording = read(path)
    records = list(recording)
    assert records == whole[: len(records)]
    if recording.cut is None:
        assert size == begin or path.read_bytes() in ends(data, begin)
    else:
        assert recording.cut.record == len(records) + 1
        assert recording.cut.offset + recording.cut.there == size


def ends(data: bytes, begin: int) -> list[bytes]:
    """The file as it was after each record."""
    found = []
    while begin < len(data):
        begin += 4 + int.from_bytes(data[begin : begin + 4], "big")
        found.append(data[:begin])
    return found


def test_a_model_given_as_a_value_is_recorded_as_its_expression(path: Path) -> None:
    setup = ShardSetup("bsp", 2)
    with Trace(path, [setup]) as trace:
        event = SetModel(EveryOther(n=3))
        trace.record(0, 1.0, event, setup.build().handle(event, 1.0))
    (record,) = read(path)
    assert record.event == SetModel("tests.observe.runs:EveryOther(n=3)")
    assert replay(read(path)).same


# What is wrong is told.

HEADER = msgpack.encode({"version": 1, "shards": [{"model": "bsp", "workers": 2}]})


def framed(*records: bytes) -> bytes:
    return b"".join(len(record).to_bytes(4, "big") + record for record in records)


def header(**shard: object) -> bytes:
    return msgpack.encode({"version": 1, "shards": [{"model": "bsp", "workers": 2} | shard]})


def event(*values: object) -> bytes:
    return msgpack.encode([0, 1.0, values, []])


HOSTILE = {
    "empty": (b"", "is no trace: it begins with b''"),
    "foreign": (b"\x7fELF" + bytes(100), r"is no trace: it begins with b'\x7fELF"),
    "no header": (format_.MARK, "the header at offset 15 is cut off; 0 of its bytes are there"),
    "another version": (
        format_.MARK + framed(msgpack.encode({"version": 2, "servers": 3})),
        "is a trace of version 2; this program reads version 1",
    ),
    "a header of nothing": (format_.MARK + framed(msgpack.encode(None)), "the header at offset 15 cannot be read"),
    "a huge header": (format_.MARK + b"\xff" * 100, "says that it has 4294967295 bytes; there are 16777216 at most"),
    "too many workers": (format_.MARK + framed(header(workers=10**12)), "`int` <= 1000000"),
    "no such model": (format_.MARK + framed(header(model="spp")), "there is no model 'spp'"),
    "no such worker": (format_.MARK + framed(header(workers=[1, 1])), "worker 1 cannot be"),
    "one shard twice": (
        format_.MARK + framed(msgpack.encode({"version": 1, "shards": [{"model": "bsp", "workers": 2}] * 2})),
        "two shards of the same index",
    ),
    "a huge record": (format_.MARK + framed(HEADER) + b"\x7f" + bytes(9), "record 1 at offset 57 says that it has"),
    "noise": (format_.MARK + framed(HEADER, b"\xc1\xc1"), "record 1 at offset 57 cannot be read"),
    "an endless list": (format_.MARK + framed(HEADER, b"\x94\x00\x00\x91\xdd\xff\xff\xff\xff"), "cannot be read"),
    "no event": (format_.MARK + framed(HEADER, event("Exploded", 3)), "Invalid value 'Exploded'"),
    "a text for a worker": (format_.MARK + framed(HEADER, event("Pulled", "0", 1)), "Expected `int`, got `str`"),
    "no such shard": (
        format_.MARK + framed(HEADER, event("TimerFired", 3), msgpack.encode([1, 1.0, ["TimerFired", 3], []])),
        "record 2 at offset 86 is of shard 1; there are [0]",
    ),
    "no such new model": (format_.MARK + framed(HEADER, event("SetModel", "ssp")), "record 1: SetModel(model='ssp')"),
}


@pytest.mark.parametrize(("data", "complaint"), HOSTILE.values(), ids=list(HOSTILE))
def test_what_cannot_be_replayed_gets_one_error_that_says_where_and_why(
    path: Path, data: bytes, complaint: str
) -> None:
    path.write_bytes(data)
    with pytest.raises(TraceError) as caught:
        replay(read(path))
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
    ran = CliRunner().invoke(app, ["replay", str(path)])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("paceline: ")
    assert ran.stderr.count("\n") == 1


@given(seed=st.integers(0, 2**32))
@settings(max_examples=cases(150), deadline=None)
def test_flipped_bits_are_found_or_harmless_but_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, run_path: Path, seed: int
) -> None:
    random = Random(seed)
    data = bytearray(run_path.read_bytes())
    for _ in range(random.randint(1, 3)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path = tmp_path_factory.mktemp("flipped") / "a.trace"
    path.write_bytes(data)
    try:
        replay(read(path))
    except TraceError as error:
        assert str(path) in str(error)


def test_a_file_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot read the trace: .*a.trace"):
        read(path)
    with pytest.raises(TraceError, match=r"cannot write the trace: .*nowhere"):
        Trace(path.parent / "nowhere" / "a.trace", []).start()


def test_what_cannot_be_recorded_is_told_and_leaves_the_trace_whole(path: Path) -> None:
    with Trace(path, [ShardSetup("bsp", 1)]) as trace:
        trace.record(0, 1.0, TimerFired(1), [])
        with pytest.raises(TraceError, match=r"shard 1 is not one of this trace's, \[0\]"):
            trace.record(1, 1.0, TimerFired(1), [])
        with pytest.raises(TraceError, match="TimerFired"):
            trace.record(0, 1.0, TimerFired(2**70), [])
        trace.record(0, 1.0, TimerFired(2), [])
    assert [record.event for record in read(path)] == [TimerFired(1), TimerFired(2)]
    with pytest.raises(TraceError, match="not open"):
        trace.record(0, 1.0, TimerFired(3), [])
    with pytest.raises(TraceError, match="not open"):
        Trace(path, [ShardSetup("bsp", 1)]).record(0, 1.0, TimerFired(3), [])
    with pytest.raises(TraceError, match="same index"):
        Trace(path, [ShardSetup("bsp", 1)] * 2)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is full")
def test_a_full_disk_is_told(path: Path) -> None:
    with pytest.raises(TraceError, match="No space left"):
        Trace("/dev/full", [ShardSetup("bsp", 1)]).start()
