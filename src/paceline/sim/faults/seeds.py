"""A run under faults by its seed, and what is told when it goes wrong."""

from __future__ import annotations

from shlex import quote

from paceline.sim.faults.draw import Plan, draw
from paceline.sim.faults.storm import OnEvent, Outcome, Storm
from paceline.sync import InvariantViolated, Model, Shard


class SeedFailed(AssertionError):
    """A seed has found something wrong with the core. The message tells what, the seed, and how to see it again."""

    def __init__(self, plan: Plan, story: str, command: str) -> None:
        super().__init__(f"{story}\nseed {plan.seed}, under {', '.join(plan.expressions)}; to see it again: {command}")
        self.plan = plan
        self.story = story
        self.command = command


def run_seed(
    seed: int, sync: Model | str | None = None, on_event: OnEvent | None = None, shard: type[Shard] = Shard
) -> Outcome:
    """Let the run that a seed stands for happen; with a model, all of it under that one.

    `on_event` sees what shards are told and say.
    """
    plan = draw(seed, sync)
    try:
        return Storm(plan, on_event, shard).run()
    except InvariantViolated as error:
        raise SeedFailed(plan, str(error), command(seed, sync)) from error
    except Exception as error:  # nothing that a cluster can do makes the core raise
        story = f"nothing_makes_the_core_raise: {type(error).__name__}: {error}"
        raise SeedFailed(plan, story, command(seed, sync)) from error


def command(seed: int, sync: Model | str | None = None) -> str:
    """What replays a seed."""
    return f"paceline faults --seed {seed}" + ("" if sync is None else f" --sync {quote(str(sync))}")
