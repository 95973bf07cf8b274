"""A worker's rounds under esync: local iterations, and what the State Server says of them.

    rounds.begin(round)        the parameters of the round are in place
    rounds.stepped()           an iteration has been done on them
    rounds.settled             is it known whether there is time for another?
    rounds.over                there is not; what was done is on its way

While a worker computes, an answer may come that its round is over. What it has done until then is sent at once, and the
iteration that it computes is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from paceline.nodes import messages as m
from paceline.sync.local_steps import Action, Answered, Contribute, LocalSteps, Query, RoundBegan, ServerLost, StepDone
from paceline.sync.models.esync import ESync
from paceline.wire import Channel

WORTH = 0.05  # of an iteration


class LocalRounds:
    """`contribute` sends what the worker has done in the round."""

    def __init__(self, model: ESync, clock: Callable[[], float], contribute: Callable[[], None]) -> None:
        self.model = model
        self.over = False
        self.steps = 0  # local iterations that went into the round
        self.most = 0  # that anybody has done in it, once it is over
        self._machine = LocalSteps(model)
        self._clock = clock
        self._contribute = contribute
        self._stepping = False  # has the machine asked for an iteration that has not ended?
        self._asked: tuple[int, int, float] | None = None  # the last query: round, steps, and when it was sent
        self._round_trip = 0.0  # of a query, in seconds
        self._took = 0.0  # the last iteration, in seconds
        self._began = 0.0
        self._channel: Channel | None = None

    @property
    def settled(self) -> bool:
        return self.over or self._stepping

    @property
    def alone(self) -> bool:
        """Is there no State Server, or none any more?"""
        return self._channel is None

    @property
    def soon(self) -> float:
        """For how many seconds an answer that is due any moment is worth waiting for before the next iteration.

        Nobody can stop an iteration that is being computed, so one that is to be given up is lost time.
        """
        return self._took * WORTH if self._asked and not self.over and self._round_trip < self._took * WORTH else 0.0

    @property
    def awaits(self) -> bool:
        """Is the last query unanswered, and the round not over?"""
        return self._asked is not None and not self.over

    def connected(self, channel: Channel | None) -> None:
        """Queries go there; without a State Server every round has one iteration, unless the model says how many."""
        self._channel = channel
        if channel is None:
            self.lost()

    def lost(self) -> None:
        """The State Server is gone, or does not answer."""
        channel, self._channel, self._asked = self._channel, None, None
        if channel is not None and not channel.closed:
            channel.close("no answer came")
        self._do(self._machine.handle(ServerLost(), self._clock()))

    def begin(self, round_: int) -> None:
        self.over = self._stepping = False
        self.steps = 0
        self._tell(m.RoundBegan(round_))
        self._do(self._machine.handle(RoundBegan(round_), self._clock()))

    def stepped(self) -> None:
        self.steps += 1
        self._stepping = False
        self._took = self._clock() - self._began
        self._do(self._machine.handle(StepDone(), self._clock()))

    def answered(self, state: m.State) -> None:
        if self._asked is not None and self._asked[:2] == (state.round, state.steps):
            self._round_trip = self._clock() - self._asked[2]
            self._asked = None
        self._do(self._machine.handle(Answered(state.round, state.steps, state.ready, state.most), self._clock()))

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Query(round_, steps, capability, _):
                    self._asked = round_, steps, self._clock()
                    self._tell(m.Query(round_, steps, capability))
                case Contribute(most=most):
                    self.over, self._stepping, self.most = True, False, most
                    self._contribute()
                case _:
                    self._stepping, self._began = True, self._clock()

    def _tell(self, message: m.AnyMessage) -> None:
        if self._channel is not None and not self._channel.closed:
            self._channel.send(m.encode(message))
