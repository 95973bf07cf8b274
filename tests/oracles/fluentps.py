"""FluentPS, algorithm 1 and table III, written down as the paper has them.

One server, a fixed number of workers. Table III's `==` and algorithm 1's single `if` are kept. A pull that is delayed
is filed under `progress` (lazy execution) or under `V_train` (soft barrier).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import e, inf
from typing import Literal

Pull = tuple[int, int]  # worker n, progress
PullCondition = Callable[["Server", Pull], bool]
PushCondition = Callable[["Server"], bool]
Conditions = tuple[PullCondition, PushCondition]
Index = Literal["progress", "V_train"]


class Server:
    """Parameter server m."""

    def __init__(self, N: int, conditions: Conditions, index: Index) -> None:
        self.N = N
        self.PULL_con, self.PUSH_con = conditions
        self.index = index
        self.w: list[Pull] = []  # the gradients that have been added to the parameters
        self.V_train = 0
        self.Count: dict[int, int] = defaultdict(int)
        self.callbacks: dict[int, list[Callable[[], None]]] = defaultdict(list)
        self.waiting: list[Pull] = []  # who is in the callbacks
        self.responses: list[tuple[Pull, int]] = []  # whom the server has answered, and with how many gradients in w
        self.s: float = 0  # DSPS's, set from outside
        self.significance: dict[int, float] = {}  # |g| / |w| of each worker's last gradient, set from outside

    def PullHandler(self, n: int, progress: int) -> None:
        if self.PULL_con(self, (n, progress)):
            self.respond((n, progress))
        else:

            def LazyPull() -> None:
                self.waiting.remove((n, progress))
                self.respond((n, progress))

            self.waiting.append((n, progress))
            self.callbacks[progress if self.index == "progress" else self.V_train].append(LazyPull)

    def PushHandler(self, n: int, progress: int) -> None:
        self.w.append((n, progress))
        self.Count[progress] = self.Count[progress] + 1
        if self.PUSH_con(self):
            for func in self.callbacks[self.V_train]:
                func()
            self.callbacks[self.V_train].clear()
            self.V_train = self.V_train + 1

    def respond(self, pull: Pull) -> None:
        self.responses.append((pull, len(self.w)))


# Table III.


def within(s: Callable[[Server], float]) -> PullCondition:
    def PULL_con(server: Server, pull: Pull) -> bool:
        _, progress = pull
        return progress < server.V_train + s(server)

    return PULL_con


def all_have_pushed(server: Server) -> bool:
    return server.Count[server.V_train] == server.N


BSP = within(lambda _: 0), all_have_pushed
ASP = within(lambda _: inf), all_have_pushed
DSPS = within(lambda server: server.s), all_have_pushed


def SSP(s: float) -> Conditions:
    return within(lambda _: s), all_have_pushed


def DropStragglers(N_t: int) -> Conditions:
    return within(lambda _: 0), lambda server: server.Count[server.V_train] == N_t


def PSSP(s: int, P: Callable[[Server, Pull], float], rand: Callable[[Pull], float]) -> Conditions:
    """`P` is the probability to hold a pull, `rand` the coin for it."""

    def PULL_con(server: Server, pull: Pull) -> bool:
        _, progress = pull
        return progress < server.V_train + s or rand(pull) > P(server, pull)

    return PULL_con, all_have_pushed


def constant(s: int, c: float) -> Callable[[Server, Pull], float]:
    def P(server: Server, pull: Pull) -> float:
        k = pull[1] - server.V_train
        return 0 if k < s else c

    return P


def dynamic(s: int, alpha: Callable[[Server, int], float]) -> Callable[[Server, Pull], float]:
    def P(server: Server, pull: Pull) -> float:
        k = pull[1] - server.V_train
        return 0 if k < s else alpha(server, pull[0]) / (1 + e ** (s - k))

    return P


def significance(server: Server, n: int) -> float:
    return server.significance[n]
