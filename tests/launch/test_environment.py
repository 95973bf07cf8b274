"""Which worker a process is: who is believed, what is never mixed, and what a mistake gets to read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.launch.environment import Place, PlaceError, environment_of, resolve
from tests.effort import cases

RUN = {"PACELINE_RUN": "runs/7.json"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "2"}
KUBERNETES = {"JOB_COMPLETION_INDEX": "3"}
OWN = {"PACELINE_RANK": "6", "PACELINE_WORLD_SIZE": "9", "PACELINE_LOCAL_RANK": "3"}


def numbers(environ: dict[str, str], **arguments: int) -> tuple[int, int, int]:
    place = resolve(RUN | environ, **arguments)  # type: ignore[arg-type]
    assert place is not None
    assert place.run == "runs/7.json"
    return place.rank, place.world_size, place.local_rank


def source(environ: dict[str, str], **arguments: int) -> str:
    place = resolve(RUN | environ, **arguments)  # type: ignore[arg-type]
    assert place is not None
    return place.source


def complaint(environ: dict[str, str], **arguments: object) -> str:
    with pytest.raises(PlaceError) as caught:
        resolve(RUN | environ, **arguments)  # type: ignore[arg-type]
    return str(caught.value)


def test_without_a_run_a_script_trains_alone() -> None:
    assert resolve({}) is None
    assert resolve(TORCHRUN | SLURM | KUBERNETES | OWN) is None
    assert resolve({"PACELINE_RUN": ""} | OWN) is None
    assert resolve({"RANK": "nonsense"}) is None


def test_the_run_can_be_an_argument_and_beats_the_environment() -> None:
    for environ in ({}, RUN):
        place = resolve(environ | TORCHRUN, run="other.json")
        assert place == Place(rank=1, world_size=4, local_rank=0, run="other.json", source="torchrun")


def test_each_launcher_is_understood_and_named() -> None:
    assert (numbers(TORCHRUN), source(TORCHRUN)) == ((1, 4, 0), "torchrun")
    assert (numbers(SLURM), source(SLURM)) == ((5, 8, 2), "Slurm")
    index = KUBERNETES | {"PACELINE_WORLD_SIZE": "4"}
    assert (numbers(index), source(index)) == ((3, 4, 0), "Kubernetes, with PACELINE_WORLD_SIZE")
    assert (numbers(OWN), source(OWN)) == (
        (6, 9, 3),
        "PACELINE_RANK, PACELINE_WORLD_SIZE and PACELINE_LOCAL_RANK",
    )


def test_the_nearest_launcher_counts() -> None:
    assert numbers(OWN | TORCHRUN | SLURM | KUBERNETES) == (6, 9, 3)
    assert numbers(TORCHRUN | SLURM | KUBERNETES) == (1, 4, 0)
    assert numbers(SLURM | KUBERNETES) == (5, 8, 2)


def test_own_variables_and_arguments_replace_single_values() -> None:
    environ = TORCHRUN | {"PACELINE_RANK": "2"}
    assert (numbers(environ), source(environ)) == ((2, 4, 0), "torchrun, with PACELINE_RANK")
    assert numbers(environ, rank=3) == (3, 4, 0)
    assert source(environ, rank=3, local_rank=1) == "torchrun, with the argument rank and the argument local_rank"
    assert numbers(OWN, rank=0, world_size=1, local_rank=0) == (0, 1, 0)
    assert numbers({}, rank=2, world_size=3, local_rank=1) == (2, 3, 1)


def test_what_is_replaced_need_not_be_right() -> None:
    assert numbers(TORCHRUN | {"RANK": "x", "PACELINE_RANK": "2"}) == (2, 4, 0)
    assert numbers(TORCHRUN | {"LOCAL_RANK": "", "PACELINE_LOCAL_RANK": "1"}) == (1, 4, 1)
    assert numbers(OWN | {"PACELINE_RANK": "x"}, rank=1) == (1, 9, 3)
    assert numbers(OWN | {"RANK": "1"}) == (6, 9, 3)


@pytest.mark.parametrize("missing", list(TORCHRUN))
def test_half_of_torchrun_is_not_filled_up_from_slurm(missing: str) -> None:
    half = {name: value for name, value in TORCHRUN.items() if name != missing}
    for environ in (half, half | {missing: ""}, half | SLURM | KUBERNETES):
        words = complaint(environ)
        for name, value in half.items():
            assert f"{name}={value}" in words
        assert f"set {missing} or PACELINE_{missing}" in words


@pytest.mark.parametrize("missing", list(SLURM))
def test_half_of_slurm_is_an_error(missing: str) -> None:
    words = complaint({name: value for name, value in SLURM.items() if name != missing} | KUBERNETES)
    assert "Slurm says" in words
    assert f"set {missing} or PACELINE_" in words


def test_an_indexed_job_needs_the_number_of_workers() -> None:
    assert "JOB_COMPLETION_INDEX=3, but no world_size: set PACELINE_WORLD_SIZE" in complaint(KUBERNETES)


def test_a_run_without_a_place_is_an_error_that_says_what_to_set() -> None:
    assert "set PACELINE_RANK, PACELINE_WORLD_SIZE and PACELINE_LOCAL_RANK" in complaint({})
    assert "no local_rank: set PACELINE_LOCAL_RANK" in complaint({}, rank=1, world_size=2)


@pytest.mark.parametrize("bad", ["x", "-1", "1.0", "+1", " 1", "1e3", "٣", "1_0", "9" * 5000, "1000001"])
@pytest.mark.parametrize(("environ", "name"), [(TORCHRUN, "RANK"), (SLURM, "SLURM_NTASKS"), (OWN, "PACELINE_RANK")])
def test_what_is_no_number_is_named(environ: dict[str, str], name: str, bad: str) -> None:
    words = complaint(environ | {name: bad})
    assert f"{name} is {bad[:40]!r}; it is a whole number" in words


@pytest.mark.parametrize("bad", [-1, 1.0, "1", True])
def test_an_argument_that_is_no_number_is_named(bad: object) -> None:
    assert f"the argument rank is {bad!r}; it is a whole number" in complaint(TORCHRUN, rank=bad)


def test_numbers_that_do_not_go_together_are_told() -> None:
    assert "RANK is 4, but WORLD_SIZE is 4; rank is a number from 0 to 3" in complaint(TORCHRUN | {"RANK": "4"})
    assert "LOCAL_RANK is 4, but WORLD_SIZE is 4; local_rank" in complaint(TORCHRUN | {"LOCAL_RANK": "4"})
    assert "SLURM_NTASKS is 0; it is the number of workers" in complaint(SLURM | {"SLURM_NTASKS": "0"})
    index = complaint(KUBERNETES | {"PACELINE_WORLD_SIZE": "2"})
    assert "JOB_COMPLETION_INDEX is 3, but PACELINE_WORLD_SIZE is 2" in index
    assert "RANK is 1, but the argument world_size is 1" in complaint(TORCHRUN, world_size=1)


@st.composite
def places(draw: st.DrawFn) -> Place:
    world_size = draw(st.integers(1, 10**6))
    below = st.integers(0, world_size - 1)
    return Place(rank=draw(below), world_size=world_size, local_rank=draw(below), run="r.json", source="a launcher")


VARIABLES = st.sampled_from(["PACELINE_RUN", *TORCHRUN, *SLURM, *KUBERNETES, *OWN])


@given(place=places(), around=st.dictionaries(VARIABLES, st.text(max_size=3)))
@settings(max_examples=cases(200), deadline=None)
def test_what_a_launcher_sets_leads_back_to_the_place_whatever_is_around_it(
    place: Place, around: dict[str, str]
) -> None:
    environ = around | environment_of(place)
    found = resolve(environ)
    assert found is not None
    assert (found.rank, found.world_size, found.local_rank, found.run) == (
        place.rank,
        place.world_size,
        place.local_rank,
        place.run,
    )
    assert [environ[name] for name in TORCHRUN] == [str(n) for n in (place.rank, place.world_size, place.local_rank)]


@given(environ=st.dictionaries(VARIABLES, st.integers(-1, 4).map(str) | st.sampled_from(["", "x"])))
@settings(max_examples=cases(500), deadline=None)
def test_any_environment_gives_a_place_that_can_be_or_an_error(environ: dict[str, str]) -> None:
    try:
        place = resolve(environ)
    except PlaceError as error:
        assert environ.get("PACELINE_RUN")
        assert str(error)
    else:
        assert (place is None) == (not environ.get("PACELINE_RUN"))
        if place is not None:
            assert 0 <= place.rank < place.world_size
            assert 0 <= place.local_rank < place.world_size
