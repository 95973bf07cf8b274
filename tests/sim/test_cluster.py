"""Machines as they are described: what they compute, what their lines carry, and what cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from paceline.cli import app
from paceline.sim import Cluster, ClusterError, Group, Hiccup, Servers, Timeline, read, simulate, simulate_cluster
from paceline.sim import cluster as clusters
from paceline.sim.cluster import Network as Lines
from paceline.sim.cluster import to_toml
from paceline.sim.network import Network

GIGABYTE = 8.0  # gigabits
EXAMPLE = (clusters.__doc__ or "").split("\n\n", 1)[1].rsplit("\n\n", 1)[0]


def starts(timeline: Timeline) -> list[list[float]]:
    return [[round(span.start, 6) for span in lane.spans if span.kind == "computing"] for lane in timeline.lanes]


# Lines.


def test_gradients_for_one_server_come_one_after_the_other() -> None:
    """100 MB take 0.1 s on a line of a gigabyte; parameters go out one after the other, too."""
    cluster = Cluster(
        workers=(Group(seconds=1.0, count=4),),
        servers=Servers(update=0.05),
        network=Lines(gigabits=GIGABYTE),
        megabytes=100.0,
    )
    first, second = zip(*(lane[:2] for lane in starts(simulate_cluster("bsp", cluster, 2.5))), strict=True)
    assert first == (0.1, 0.2, 0.3, 0.4)
    assert second == (1.65, 1.75, 1.85, 1.95)  # the last push is in at 1.5, and updated at 1.55


def test_the_slower_line_counts_and_shards_share_the_bytes() -> None:
    cluster = Cluster(
        workers=(Group(seconds=1.0, gigabits=GIGABYTE / 4), Group(seconds=1.0)),
        servers=Servers(count=2),
        network=Lines(gigabits=GIGABYTE, latency=0.01),
        megabytes=100.0,
    )
    slow, fast = starts(simulate_cluster("asp", cluster, 3.0))
    assert slow[0] == pytest.approx(0.01 + 0.01 + 0.4)
    assert fast[0] == pytest.approx(0.01 + 0.05 + 0.01 + 0.1)  # behind the other's on both servers' lines


class Book:
    """An agenda that notes when what arrived."""

    def __init__(self) -> None:
        self.now = 0.0
        self.arrived: list[tuple[float, str, int, int]] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: float, priority: int, action: Callable[[], None]) -> None:
        assert time >= self.now
        self._count += 1
        heappush(self._agenda, (time, self._count, action))

    def run(self) -> None:
        while self._agenda:
            self.now, _, action = heappop(self._agenda)
            action()


sent = st.tuples(
    st.floats(0, 3), st.sampled_from(["push", "answer"]), st.integers(0, 2), st.integers(0, 1), st.floats(0, 2e9)
)


@given(st.lists(sent, max_size=25), st.floats(1, 50), st.floats(0, 1))
def test_nothing_overtakes_and_no_line_is_faster_than_it_is(
    messages: list[tuple[float, str, int, int, float]], gigabits: float, latency: float
) -> None:
    book = Book()
    cluster = Cluster(
        workers=(Group(seconds=1.0, count=3),),
        servers=Servers(count=2, gigabits=20.0),
        network=Lines(gigabits=gigabits, latency=latency),
    )
    network = Network(cluster, book, 1)
    order = sorted(messages, key=lambda message: message[0])
    for number, (time, kind, worker, server, size) in enumerate(order):

        def arrive(number: int = number, kind: str = kind, worker: int = worker, server: int = server) -> None:
            book.arrived.append((book.now, f"{kind} {worker} {server}", number, 0))

        def send(
            kind: str = kind,
            worker: int = worker,
            server: int = server,
            size: float = size,
            arrive: Callable[[], None] = arrive,
        ) -> None:
            if kind == "push":
                network.to_server(worker, server, size, arrive)
            else:
                network.to_worker(server, worker, size, arrive)

        book.at(time, 0, send)
    book.run()
    assert len(book.arrived) == len(messages)
    for pair in {pair for _, pair, _, _ in book.arrived}:
        numbers = [number for _, other, number, _ in book.arrived if other == pair]
        assert numbers == sorted(numbers)
    for now, _, number, _ in book.arrived:
        time, size = order[number][0], order[number][4]
        assert now >= time + latency + size * 8e-9 / min(gigabits, 20.0) - 1e-9
    for server in range(2):
        mine = [(now, order[n]) for now, _, n, _ in book.arrived if order[n][1] == "push" and order[n][3] == server]
        if mine:
            volume = sum(message[4] for _, message in mine)
            assert max(now for now, _ in mine) >= min(m[0] for _, m in mine) + latency + volume * 8e-9 / 20.0 - 1e-9


# What machines compute.


def test_slowness_is_that_of_a_run() -> None:
    run = simulate("asp", (1, 1), until=20, slow=["worker 1: 5x", "worker 0: +1s"])
    assert [lane.iterations for lane in run.lanes] == [10, 4]
    late = simulate("bsp", (1, 1), until=9, slow=["server 0: +2s"])
    assert starts(late) == [[2, 5, 8], [2, 5, 8]]


def test_measured_times_come_again_and_again() -> None:
    cluster = Cluster(workers=(Group(times=(1.0, 3.0)),))
    assert starts(simulate_cluster("asp", cluster, 8)) == [[0, 1, 4, 5]]


def test_a_lognormal_group_has_its_median_and_its_spread() -> None:
    group = Group(seconds=2.0, sigma=0.5)
    times = sorted(group.work(0, nth, 1) for nth in range(4001))
    assert times[2000] == pytest.approx(2.0, rel=0.05)
    assert times[3365] == pytest.approx(2.0 * 1.6487, rel=0.08)  # one sigma above


# Files.


def test_the_example_in_the_documentation() -> None:
    cluster = clusters.parse_toml(EXAMPLE)
    assert (cluster.size, cluster.servers.count, cluster.cuts, cluster.megabytes) == (4, 2, 2, 45)
    assert simulate_cluster("asp", cluster, 5.0).iterations > 20


def test_the_example_beside_the_scripts() -> None:
    cluster = read(Path(__file__).parents[2] / "examples" / "cluster.toml")
    bsp, asp = (simulate_cluster(model, cluster, 30.0) for model in ("bsp", "asp"))
    assert asp.iterations > 1.5 * bsp.iterations > 0


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster(workers=(Group(seconds=0.5),)),
        clusters.parse_toml(EXAMPLE),
        Cluster(
            workers=(Group(times=(0.25, 1e-06), count=3, gigabits=2.5), Group(seconds=1.0, jitter=0.25)),
            network=Lines(latency=(0.5,)),
            hiccups=(Hiccup(1, 2.0, 3.5),),
            slow=("worker 1: 50% 2x",),
            seed=7,
        ),
    ],
)
def test_what_is_written_is_read(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(to_toml(cluster))
    assert read(file) == cluster


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "missing required field `workers`"),
        ("workers = []", "needs at least one worker"),
        ("[[workers]]\nseconds = -1", "takes -1 seconds"),
        ("[[workers]]\ncount = 2", "takes 0 seconds"),
        ("[[workers]]\nseconds = 1\ntimes = [1, 2]", "either seconds"),
        ("[[workers]]\nseconds = 1\ncount = 0", "count is 0; give a number from 1"),
        ("[[workers]]\nseconds = 1\nspeed = 3", "unknown field `speed`"),
        ("[[workers]]\nseconds = 'fast'", "Expected `float`"),
        ("[[workers]]\nseconds = 1\ngigabits = 0", "gigabits is 0"),
        ("shards = 1\n[[workers]]\nseconds = 1\n[servers]\ncount = 2", "shards is 1; give a number from 2"),
        ("slow = ['worker 3: 5x']\n[[workers]]\nseconds = 1", "there is no worker 3"),
        ("slow = ['worker 0: fast']\n[[workers]]\nseconds = 1", "fast"),
        ("[[workers]]\nseconds = 1\n[network]\nlatency = [1, 2]", "2 values for 1 servers"),
        ("[[workers]\n", "Expected"),
    ],
)
def test_what_cannot_be_is_told_with_the_file(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    with pytest.raises(ClusterError, match=r"cluster\.toml") as caught:
        read(file)
    assert words in str(caught.value)
    with pytest.raises(ClusterError, match="cannot be read"):
        read(tmp_path / "none.toml")


# The command.


def fine(*arguments: str) -> str:
    ran = CliRunner().invoke(app, ["simulate", *arguments], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_a_trace_is_the_same_byte_for_byte_and_can_be_replayed_and_gone_on_from(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(EXAMPLE)
    traces = [tmp_path / name / "server-0.trace" for name in ("one", "two")]
    for trace in traces:
        trace.parent.mkdir()
        fine(str(file), "--sync", "pssp(s=1, c=0.5)", "--trace", str(trace))
    assert traces[0].read_bytes() == traces[1].read_bytes()
    replayed = CliRunner().invoke(app, ["replay", str(traces[0])])
    assert replayed.exit_code == 0, replayed.output

    again = tmp_path / "again.toml"
    document = json.loads(fine(str(tmp_path / "one"), "--sync", "asp", "--save", str(again), "--json"))
    assert len(document["cluster"]["workers"]) == 4
    assert read(again).size == 4
    assert fine(str(again), "--sync", "asp") == fine(str(tmp_path / "one"), "--sync", "asp")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.toml"], "cannot be read"),
        (["{file}", "--paces", "1,2"], "--paces is for machines that no file describes"),
        (["{file}", "--seed", "1"], "--seed is for machines that no file describes"),
        (["{file}", "--trace", "t", "--sync", "asp", "--sync", "bsp"], "give one --sync"),
        (["{file}", "--slow", "worker 9: 5x"], "there is no worker 9"),
        (["{folder}"], "server-0.trace"),
        (["--slow", "worker 0: quick"], "quick"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(EXAMPLE)
    given = [argument.format(file=file, folder=tmp_path) for argument in arguments]
    ran = CliRunner().invoke(app, ["simulate", *given], catch_exceptions=False)
    assert ran.exit_code == 2
    assert words in ran.output
    assert len(ran.output.splitlines()) == 1


# Shards of different sizes.


def test_a_large_shard_takes_longer_on_the_line_and_to_update() -> None:
    """100 MB as 90 and 10: the larger takes 0.09 s of a gigabyte's line, and nine tenths of the update."""
    cluster = Cluster(
        workers=(Group(seconds=1.0),),
        servers=Servers(count=2, update=0.1, gigabits=GIGABYTE),
        megabytes=100.0,
        sizes=(9.0, 1.0),
    )
    (run,) = starts(simulate_cluster("bsp", cluster, 2.5))
    assert run[:2] == [0.09, 1.36]  # computed for 1 s, pushed, updated and pulled for 0.09 s each


def test_even_sizes_are_what_a_count_gives() -> None:
    counted = Cluster(workers=(Group(seconds=1.0, count=2),), megabytes=10.0, shards=4, servers=Servers(count=2))
    sized = msgspec.structs.replace(counted, shards=None, sizes=(3.0, 3.0, 3.0, 3.0))
    assert sized.shares == counted.shares == (0.25, 0.25, 0.25, 0.25)
    assert simulate_cluster("ssp(s=1)", sized, 5.0) == simulate_cluster("ssp(s=1)", counted, 5.0)
    assert clusters.parse_toml(to_toml(sized)) == sized


@pytest.mark.parametrize(
    ("sizes", "shards", "servers", "words"),
    [
        ((1.0, 2.0), 3, 1, "2 values for 3 shards on 1 servers"),
        ((1.0,), None, 2, "1 values for 1 shards on 2 servers"),
        ((1.0, -1.0), None, 1, "a shard's size is -1"),
        ((0.0, 0.0), None, 1, "all sizes are 0"),
    ],
)
def test_sizes_that_cannot_be(sizes: tuple[float, ...], shards: int | None, servers: int, words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        Cluster(workers=(Group(seconds=1.0),), sizes=sizes, shards=shards, servers=Servers(count=servers))
