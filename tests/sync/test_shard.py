"""The machine by example: what each kind of event does, and what bad input gets."""

from __future__ import annotations

import pytest

from paceline.sync import (
    Advance,
    Apply,
    Drop,
    EventError,
    Grant,
    Hold,
    Joined,
    Left,
    ModelError,
    Pulled,
    Pushed,
    SetModel,
    SetTimer,
    Shard,
    TimerFired,
)
from paceline.sync.commands import Command


def run(shard: Shard, *events: object, start: float = 0.0) -> list[Command]:
    """Hand in events a second apart; the commands that the last one got."""
    commands: list[Command] = []
    for second, event in enumerate(events):
        commands = shard.handle(event, start + second)  # type: ignore[arg-type]
    return commands


def of(kind: type, commands: list[Command]) -> list[Command]:
    return [command for command in commands if isinstance(command, kind)]


def granted(commands: list[Command]) -> list[tuple[int, int]]:
    return [(command.worker, command.iteration) for command in commands if isinstance(command, Grant)]


# Rounds and releases.


def test_a_round_is_applied_before_it_advances_and_advances_before_its_pulls_are_granted() -> None:
    commands = run(Shard("bsp", 2), Pushed(0, 0), Pulled(0, 0), Pushed(1, 0))
    assert [type(command) for command in commands] == [Apply, Advance, Grant]


def test_a_held_pull_says_under_which_rule_it_waits_and_for_whom() -> None:
    shard = Shard("ssp(s=1)", 4)
    (hold,) = run(shard, Pushed(2, 0), Pulled(2, 0), Pushed(2, 1), Pulled(2, 1))
    assert isinstance(hold, Hold)
    assert hold.reason.rule == "ssp(s=1)"
    assert hold.reason.gap == 1
    assert hold.reason.missing == 3
    assert set(hold.reason.waiting_for) == {0, 1, 3}
    assert str(hold.reason) == "ahead under ssp(s=1), 1 ahead, for worker " + ", ".join(
        map(str, hold.reason.waiting_for)
    )


def test_a_released_pull_says_whose_push_it_waited_for() -> None:
    shard = Shard("bsp", 3)
    commands = run(shard, Pushed(0, 0), Pulled(0, 0), Pushed(2, 0), Pushed(1, 0))
    (grant,) = of(Grant, commands)
    assert isinstance(grant, Grant)
    assert (grant.reason.cause, grant.reason.waiting_for) == ("closed", (1,))


def ahead_by_three(release: str) -> Shard:
    """The paper's figure 3: with s = 3, worker 0 has finished iteration 3 before worker 2 has finished any."""
    shard = Shard(f"ssp(s=3, release={release})", 3)
    for iteration in range(3):
        assert granted(run(shard, Pushed(0, iteration), Pulled(0, iteration))) == [(0, iteration)]
    assert of(Hold, run(shard, Pushed(0, 3), Pulled(0, 3)))
    for iteration in range(4):
        run(shard, Pushed(1, iteration))
    return shard


def test_a_soft_release_waits_for_one_iteration_of_the_slowest() -> None:
    shard = ahead_by_three("soft")
    assert granted(run(shard, Pushed(2, 0))) == [(0, 3)]


def test_a_lazy_release_waits_until_the_slowest_has_finished_the_same_iteration() -> None:
    shard = ahead_by_three("lazy")
    for iteration in range(3):
        assert granted(run(shard, Pushed(2, iteration))) == []
    assert granted(run(shard, Pushed(2, 3))) == [(0, 3)]


def test_several_rounds_close_at_once_when_the_slowest_leaves() -> None:
    shard = Shard("ssp(s=5)", 3)
    for iteration in range(4):
        run(shard, Pushed(0, iteration), Pushed(1, iteration))
    commands = run(shard, Left(2))
    assert shard.clock == 4
    assert sum(command.to - command.iteration for command in commands if isinstance(command, Advance)) == 4


def test_nothing_closes_when_everyone_has_left() -> None:
    shard = Shard("bsp", 2)
    run(shard, Pushed(0, 0), Left(0))
    assert run(shard, Left(1)) == []
    assert shard.clock == 0


def test_a_wild_iteration_number_does_not_make_the_machine_count_up_to_it() -> None:
    """It answers at once, under every kind of push condition; this test would take years otherwise."""
    for model in ("bsp", "ssp(s=3)", "drop(n_t=1)", "psp(c=1)", "elastic_bsp", "asp"):
        shard = Shard(model, 2)
        run(shard, Pushed(0, 10**15), Pulled(0, 10**15), Pushed(1, 10**15), Left(0), Joined(0, 1))
        assert shard.clock <= 10**15 + 1


# Updates.


def test_versions_count_updates_and_staleness_counts_those_in_between() -> None:
    shard = Shard("asp", 2)
    staleness = []
    for event in (Pulled(0, -1), Pulled(1, -1), Pushed(0, 0), Pulled(0, 0), Pushed(0, 1), Pushed(1, 0), Pulled(1, 0)):
        staleness += [command.staleness for command in run(shard, event) if isinstance(command, Apply)]
    assert staleness == [0, 0, 2]
    assert shard.version == 3


def test_a_round_counts_as_one_update() -> None:
    shard = Shard("bsp", 2)
    (apply, advance) = run(shard, Pushed(0, 0), Pushed(1, 0))
    assert isinstance(apply, Apply)
    assert isinstance(advance, Advance)
    assert (apply.round, advance.gradients, advance.version) == (0, 2, 1)


def test_the_update_rule_can_be_chosen() -> None:
    (apply,) = run(Shard("ssp(s=3)", 2, update="round"), Pushed(0, 0))
    assert isinstance(apply, Apply)
    assert apply.round == 0


def test_another_update_rule_starts_with_the_first_iteration_that_nobody_has_pushed() -> None:
    """So no round is half summed and half applied at once, and what was summed is applied when its round closes."""
    shard = Shard("bsp", 2)
    run(shard, Pushed(0, 0), SetModel("asp"))
    (apply, advance) = run(shard, Pushed(1, 0))
    assert isinstance(apply, Apply)
    assert isinstance(advance, Advance)
    assert (apply.round, advance.gradients) == (0, 2)
    (later,) = run(shard, Pushed(0, 1))
    assert isinstance(later, Apply)
    assert later.round is None
    run(shard, SetModel("bsp"))
    (other, _) = run(shard, Pushed(1, 1))
    assert isinstance(other, Apply)
    assert other.round is None


def test_another_update_rule_leaves_alone_what_was_summed_of_those_who_have_left() -> None:
    shard = Shard("bsp", 3)
    run(shard, Pushed(0, 0), Pushed(0, 1), Left(0), SetModel("asp"))
    said = [command for i in range(3) for worker in (1, 2) for command in run(shard, Pushed(worker, i))]
    assert [command.round for command in said if isinstance(command, Apply)] == [0, 0, 1, 1, None, None]
    assert [command.gradients for command in said if isinstance(command, Advance)] == [3, 3, 0]


# The same message twice, and messages of the dead.


@pytest.mark.parametrize("model", ["bsp", "asp", "psp(c=1)", "elastic_bsp"])
def test_a_repeated_push_is_answered_the_same_and_applied_once(model: str) -> None:
    shard = Shard(model, 2)
    push = Pushed(0, 0, incarnation=0, sequence=7)
    (first, *_) = run(shard, push)
    assert isinstance(first, Apply)
    before = shard.version, shard.clock
    (again,) = run(shard, push)
    assert isinstance(again, Drop)
    assert (again.reason.cause, again.answer) == ("repeat", "applied")
    assert (shard.version, shard.clock) == before


def test_a_repeated_late_push_is_told_again_that_it_was_dropped() -> None:
    shard = Shard("drop(n_t=1)", 2)
    run(shard, Pushed(0, 0))
    (late,) = run(shard, Pushed(1, 0))
    assert isinstance(late, Drop)
    assert (late.reason.cause, late.answer) == ("late", None)
    (again,) = run(shard, Pushed(1, 0))
    assert isinstance(again, Drop)
    assert again.answer == "dropped"
    assert shard.counters.dropped == 1


def test_what_a_life_was_told_is_not_told_the_next_one() -> None:
    shard = Shard("drop(n_t=1)", 2)
    run(shard, Pushed(0, 0), Pushed(1, 0, sequence=4), Joined(1, incarnation=1))
    push = Pushed(1, 1, incarnation=1, sequence=4)
    assert isinstance(run(shard, push)[0], Apply)
    (again,) = run(shard, push)
    assert isinstance(again, Drop)
    assert again.answer == "applied"


def test_a_repeated_pull_goes_on_waiting_though_a_later_one_was_granted() -> None:
    """A worker that waits for fewer blocks than all has gone on; it is answered once, when the round has closed."""
    shard = Shard("pssp(s=0, c=0.5)", 2)
    held = next(i for i in range(100) if isinstance(run(shard, Pushed(0, i), Pulled(0, i))[-1], Hold))
    next(i for i in range(held + 1, 200) if isinstance(run(shard, Pushed(0, i), Pulled(0, i))[-1], Grant))
    (again,) = shard.handle(Pulled(0, held), 9.0)
    assert isinstance(again, Hold)
    assert again.reason.cause == "repeat"
    assert granted(shard.handle(Left(1), 9.0)).count((0, held)) == 1


def test_a_repeated_pull_is_granted_again_or_goes_on_waiting() -> None:
    shard = Shard("bsp", 2)
    run(shard, Pushed(0, 0))
    assert of(Hold, run(shard, Pulled(0, 0)))
    assert of(Hold, run(shard, Pulled(0, 0)))
    assert shard.counters.held_pulls == 1
    assert granted(run(shard, Pushed(1, 0))) == [(0, 0)]
    assert granted(run(shard, Pulled(0, 0))) == [(0, 0)]


def test_a_push_of_an_older_incarnation_is_refused() -> None:
    shard = Shard("bsp", 2)
    run(shard, Joined(0, incarnation=3))
    (drop,) = run(shard, Pushed(0, 0, incarnation=2))
    assert isinstance(drop, Drop)
    assert drop.reason.cause == "zombie"
    (drop,) = run(shard, Pulled(0, 0, incarnation=0))
    assert isinstance(drop, Drop)
    assert drop.reason.cause == "zombie"
    assert shard.counters.refused == 2
    assert isinstance(run(shard, Pushed(0, 0, incarnation=3))[0], Apply)


def test_who_was_declared_dead_must_come_back_as_another_incarnation() -> None:
    shard = Shard("bsp", 2)
    run(shard, Left(0))
    (drop,) = run(shard, Pushed(0, 0))
    assert isinstance(drop, Drop)
    assert drop.reason.cause == "zombie"
    (drop,) = run(shard, Joined(0, incarnation=0))
    assert isinstance(drop, Drop)
    assert run(shard, Joined(0, incarnation=1)) == []
    assert 0 in shard.view.workers


def test_a_death_heard_of_before_the_birth_counts() -> None:
    shard = Shard("bsp", 1)
    run(shard, Left(5, incarnation=2))
    (drop,) = run(shard, Joined(5, incarnation=2))
    assert isinstance(drop, Drop)
    assert list(shard.view.workers) == [0]


@pytest.mark.parametrize(
    "message", [Pushed(9, 0), Pulled(9, 0), Pushed(0, 0, incarnation=1), Pulled(0, 0, incarnation=1)]
)
def test_a_stranger_is_refused(message: Pushed | Pulled) -> None:
    (drop,) = run(Shard("bsp", 2), message)
    assert isinstance(drop, Drop)
    assert drop.reason.cause == "stranger"


@pytest.mark.parametrize("message", [Pushed(0, 3, sequence=9), Pushed(0, -4, sequence=9), Pulled(0, -2)])
def test_what_cannot_be_in_order_is_refused(message: Pushed | Pulled) -> None:
    shard = Shard("asp", 2)
    run(shard, Pushed(0, 0), Pushed(0, 1), Pushed(0, 2), Pushed(0, 3))
    (drop,) = run(shard, message)
    assert isinstance(drop, Drop)
    assert drop.reason.cause == "order"
    assert shard.version == 4


# Membership.


def test_a_life_does_not_start_where_the_one_before_it_did() -> None:
    shard = Shard("asp", 1)
    run(shard, Joined(1, iteration=5), Left(1), Joined(1, incarnation=1))
    (grant,) = run(shard, Pulled(1, -1, incarnation=1))
    assert isinstance(grant, Grant)
    assert grant.next == shard.view.iteration(1) == 0


def test_a_death_closes_the_round_that_waited_for_it() -> None:
    shard = Shard("bsp", 3)
    run(shard, Pushed(0, 0), Pulled(0, 0), Pushed(1, 0), Pulled(1, 0))
    commands = run(shard, Left(2))
    (advance,) = of(Advance, commands)
    assert isinstance(advance, Advance)
    assert (advance.reason.cause, advance.reason.waiting_for) == ("left", (2,))
    assert granted(commands) == [(0, 0), (1, 0)]


def test_the_gradient_of_a_worker_that_died_still_counts_but_it_is_not_waited_for() -> None:
    """Two are left, and both must push: the dead one's push does not stand in for either."""
    shard = Shard("bsp", 3)
    run(shard, Pushed(0, 0), Left(0))
    assert of(Advance, run(shard, Pushed(1, 0))) == []
    (advance,) = of(Advance, run(shard, Pushed(2, 0)))
    assert isinstance(advance, Advance)
    assert advance.gradients == 3


def test_a_joiner_starts_at_the_slowest_live_iteration_and_is_waited_for() -> None:
    shard = Shard("ssp(s=9)", 2)
    for iteration in range(5):
        run(shard, Pushed(0, iteration))
    for iteration in range(3):
        run(shard, Pushed(1, iteration))
    run(shard, Joined(2, incarnation=1))
    (grant,) = run(shard, Pulled(2, -1, incarnation=1))
    assert isinstance(grant, Grant)
    assert grant.next == 3
    assert of(Advance, run(shard, Pushed(1, 3))) == []
    assert of(Advance, run(shard, Pushed(2, 3, incarnation=1)))


def test_the_pull_of_a_worker_that_died_is_not_answered() -> None:
    shard = Shard("bsp", 3)
    run(shard, Pushed(0, 0), Pulled(0, 0), Pushed(1, 0), Pulled(1, 0), Left(0))
    assert shard.waiting == 1
    assert granted(run(shard, Pushed(2, 0))) == [(1, 0)]
    assert shard.waiting == 0


# Change of model.


def test_held_pulls_are_judged_again_under_a_new_model() -> None:
    shard = Shard("bsp", 3)
    run(shard, Pushed(0, 0), Pulled(0, 0), Pushed(1, 0), Pulled(1, 0))
    commands = run(shard, SetModel("ssp(s=1)"))
    assert granted(commands) == [(0, 0), (1, 0)]
    assert {command.reason.cause for command in commands} == {"model"}


def test_what_the_new_model_holds_too_goes_on_waiting_under_its_rule() -> None:
    shard = Shard("ssp(s=2, release=lazy)", 2)
    for iteration in range(3):
        run(shard, Pushed(0, iteration), Pulled(0, iteration))
    assert shard.waiting == 1
    assert run(shard, SetModel("ssp(s=1, release=soft)")) == []
    assert granted(run(shard, Pushed(1, 0))) == []
    assert granted(run(shard, Pushed(1, 1))) == [(0, 2)]


def test_a_new_model_can_close_rounds_at_once() -> None:
    shard = Shard("bsp", 3)
    run(shard, Pushed(0, 0), Pulled(0, 0), Pushed(1, 0))
    commands = run(shard, SetModel("drop(n_t=2)"))
    (advance,) = of(Advance, commands)
    assert isinstance(advance, Advance)
    assert advance.reason.cause == "model"
    assert granted(commands) == [(0, 0)]


def test_a_new_model_can_close_one_round_after_another() -> None:
    """Workers stand in iterations 0, 1, 2 and 3; with the first gradient of each enough, all rounds up to 3 close."""
    shard = Shard("asp", 4)
    for worker in range(4):
        for iteration in range(worker):
            run(shard, Pushed(worker, iteration))
    commands = run(shard, SetModel("drop(n_t=1)"))
    assert [command.to for command in commands if isinstance(command, Advance)] == [1, 2, 3]


def test_ssp_holds_its_bound_also_over_whoever_ran_ahead_under_asp() -> None:
    """After the change the fast worker waits until it is within the bound, not only for the next advance."""
    shard = Shard("asp", 2)
    for iteration in range(10):
        run(shard, Pushed(0, iteration), Pulled(0, iteration))
    run(shard, SetModel("ssp(s=2, release=soft)"), Pushed(0, 10), Pulled(0, 10))
    for iteration in range(8):
        assert granted(run(shard, Pushed(1, iteration))) == []
    assert granted(run(shard, Pushed(1, 8))) == [(0, 10)]


def test_a_wrong_model_changes_nothing() -> None:
    shard = Shard("bsp", 2)
    run(shard, Pushed(0, 0), Pulled(0, 0))
    with pytest.raises(ModelError, match="sssp"):
        run(shard, SetModel("sssp(s=1)"))
    assert str(shard.model) == "bsp"
    assert granted(run(shard, Pushed(1, 0))) == [(0, 0)]


# Timers.


def test_psp_waits_tau_push_after_the_c_th_gradient() -> None:
    shard = Shard("psp(c=2, tau_push=5.0)", 3)
    run(shard, Pushed(0, 0), Pulled(0, 0))
    (timer,) = of(SetTimer, shard.handle(Pushed(1, 0), 10.0))
    assert isinstance(timer, SetTimer)
    assert timer.at == 15.0
    assert timer.reason.waiting_for == (2,)
    assert shard.handle(TimerFired(timer.timer), 14.0)[-1] == SetTimer(15.0, timer.timer + 1, timer.reason)
    commands = shard.handle(TimerFired(timer.timer + 1), 15.0)
    (advance,) = of(Advance, commands)
    assert isinstance(advance, Advance)
    assert (advance.gradients, advance.reason.cause) == (2, "timer")
    (late,) = shard.handle(Pushed(2, 0), 16.0)
    assert isinstance(late, Drop)


def test_psp_does_not_wait_for_its_timer_when_everyone_is_in() -> None:
    shard = Shard("psp(c=2, tau_push=5.0)", 3)
    (timer,) = of(SetTimer, run(shard, Pushed(0, 0), Pushed(1, 0)))
    assert isinstance(timer, SetTimer)
    assert of(Advance, run(shard, Pushed(2, 0)))
    assert shard.handle(TimerFired(timer.timer), 99.0) == []
    assert shard.clock == 1


def test_psp_closes_a_round_whose_c_gradients_are_of_workers_that_have_gone_since() -> None:
    shard = Shard("psp(c=2, tau_push=5.0)", 4)
    (timer,) = of(SetTimer, run(shard, Pushed(0, 0), Pushed(1, 0)))
    assert isinstance(timer, SetTimer)
    run(shard, Left(0), Left(1), start=2.0)
    (advance,) = shard.handle(TimerFired(timer.timer), timer.at)
    assert isinstance(advance, Advance)
    assert (advance.to, advance.gradients) == (1, 2)


def test_a_time_that_has_passed_sets_no_timer() -> None:
    """A driver that hands such a timer in at once would do nothing else until the next message."""
    shard = Shard("psp(c=2, tau_push=5.0)", 4, update="immediate")
    (timer,) = of(SetTimer, run(shard, Pushed(0, 0), Pushed(1, 0)))
    assert isinstance(timer, SetTimer)
    run(shard, Left(0), Left(1), start=2.0)
    assert shard.handle(TimerFired(timer.timer), timer.at) == []
    assert of(Advance, shard.handle(Pushed(2, 0), timer.at + 1))


def test_psp_closes_rounds_that_c_workers_have_left_behind() -> None:
    """They went on without this server; nobody will push its old rounds any more, and worker 2 may never come."""
    shard = Shard("psp(c=2)", 3)
    run(shard, Pushed(2, 2), Pushed(0, 5), Pulled(0, 5))
    assert shard.clock == 3
    commands = run(shard, Pushed(1, 5))
    assert shard.clock == 6
    assert granted(commands) == [(0, 5)]


def test_a_gradient_from_further_on_goes_into_psp_s_open_round() -> None:
    shard = Shard("psp(c=3)", 3)
    (apply,) = run(shard, Pushed(0, 5))
    assert isinstance(apply, Apply)
    assert (apply.iteration, apply.round) == (5, 0)


def test_a_worker_that_fell_behind_jumps_to_the_open_round() -> None:
    for model in ("psp(c=1)", "drop(n_t=1)"):
        shard = Shard(model, 2)
        for iteration in range(5):
            run(shard, Pushed(0, iteration), Pulled(0, iteration))
        (drop,) = run(shard, Pushed(1, 0))
        assert isinstance(drop, Drop)
        (grant,) = run(shard, Pulled(1, 0))
        assert isinstance(grant, Grant)
        assert grant.next == 5
        assert isinstance(run(shard, Pushed(1, 5))[0], Apply)


# Dynamic bounds.


@pytest.mark.parametrize(("slow", "expected"), [(1.0, 1), (3.0, 2), (4.0, 3), (20.0, 6)])
def test_dsps_follows_the_spread_of_the_paces_within_its_bounds(slow: float, expected: int) -> None:
    shard = Shard("dsps(s_min=1, s_max=6)", 3)
    for worker in range(3):
        shard.handle(Pulled(worker, -1), 0.0)
    for worker, pace in ((0, 1.0), (1, 1.0), (2, slow)):
        shard.handle(Pushed(worker, 0), pace)
    assert shard.view.memory.s == expected


def test_one_slow_iteration_does_not_move_dsps() -> None:
    shard = Shard("dsps(s_min=0, s_max=9)", 2)
    now = 0.0
    for iteration in range(12):
        for worker in range(2):
            shard.handle(Pulled(worker, iteration - 1), now)
        now += 10.0 if iteration == 8 else 1.0
        shard.handle(Pushed(0, iteration), now - (9.0 if iteration == 8 else 0.0))
        shard.handle(Pushed(1, iteration), now)
        if iteration >= 4:
            assert shard.view.memory.s == 0


@pytest.mark.parametrize(("slow_pace", "extra"), [(3.0, 0), (4.0, 1), (5.0, 2), (9.0, 3)])
def test_dssp_lets_a_worker_run_on_to_where_the_slowest_is_expected(slow_pace: float, extra: int) -> None:
    """Worker 1 began its second iteration at 10 and takes `slow_pace`; worker 0 takes 1 and is at s_low at 13."""
    shard = Shard("dssp(s_low=2, s_high=5)", 2)
    shard.handle(Pulled(1, -1), 10.0 - slow_pace)
    shard.handle(Pulled(0, -1), 9.0)
    shard.handle(Pushed(0, 0), 10.0)
    shard.handle(Pushed(1, 0), 10.0)
    for worker in (0, 1):
        assert granted(shard.handle(Pulled(worker, 0), 10.0))
    now, iteration, ran_on = 10.0, 1, 0
    while True:
        now += 1.0
        shard.handle(Pushed(0, iteration), now)
        if not granted(shard.handle(Pulled(0, iteration), now)):
            break
        ran_on += iteration >= shard.clock + 2
        iteration += 1
    assert ran_on == extra


# Bad use.


@pytest.mark.parametrize("nonsense", [None, "Pushed", Grant, 3])
def test_what_is_no_event_is_an_error(nonsense: object) -> None:
    with pytest.raises(EventError, match="Pushed, Pulled"):
        run(Shard("bsp", 1), nonsense)


@pytest.mark.parametrize("workers", [[0, 1, 0], [-1], ["a"], [1.0], [True]])
def test_workers_that_cannot_be_are_an_error(workers: list[int]) -> None:
    with pytest.raises(EventError, match="whole numbers from 0"):
        Shard("bsp", workers)


def test_time_that_goes_back_counts_as_standing_still() -> None:
    shard = Shard("elastic_bsp", 2)
    shard.handle(Pulled(0, -1), 10.0)
    shard.handle(Pushed(0, 0), 3.0)
    assert shard.view.now == 10.0
    assert shard.view.intervals(0) == (0.0,)


@pytest.mark.parametrize(("model", "remembered"), [("bsp", 0), ("dssp(s_low=1, s_high=2)", 1), ("elastic_bsp", 5)])
def test_a_model_sees_as_many_recent_intervals_as_it_asks_for(model: str, remembered: int) -> None:
    shard = Shard(model, 1)
    now = 0.0
    for iteration in range(9):
        shard.handle(Pulled(0, iteration - 1), now)
        now += iteration
        shard.handle(Pushed(0, iteration), now)
    assert shard.view.intervals(0) == tuple(float(taken) for taken in range(9 - remembered, 9))


def test_a_view_is_for_reading() -> None:
    shard = Shard("bsp", 2)
    for name in ("clock", "live", "slowest", "fastest", "now", "seed", "index", "epoch", "workers", "laggards"):
        with pytest.raises(AttributeError):
            setattr(shard.view, name, 5)
