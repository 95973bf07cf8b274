"""Who drives a worker's loop: whoever waits for something, on their own thread, with no hand-over to slow it down.

While nobody waits but a push or a pull is still under way, a thread of the pump does: bulk goes out and comes in while
the worker computes, and servers never wait for a reader that has other things to do. The thread is started with the
first such push or pull, and lets go of the loop as soon as anybody wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Condition, Lock, Thread

from paceline.wire import Loop

GRACE = 0.002  # seconds in which the caller may come back by himself
NOBODY_ELSE: AbstractContextManager[None] = nullcontext()  # drives the loop, so there is nothing to take
LONGEST = 1.0  # seconds of one turn of the thread when nothing happens


class Pump:
    """`under_way` tells whether there is anything to drive the loop for."""

    def __init__(self, loop: Loop, under_way: Callable[[], bool]) -> None:
        self._loop = loop
        self._under_way = under_way
        self._turn = Lock()  # held by whoever drives the loop
        self._wanted = 0  # how many want it who are not the thread
        self._left = Condition()
        self._alone = False  # was something left under way?
        self._over = False
        self._error: BaseException | None = None
        self._thread: Thread | None = None

    def mine(self) -> AbstractContextManager[None]:
        """The loop, for as long as this lasts."""
        return NOBODY_ELSE if self._thread is None else self._taken()

    @contextmanager
    def _taken(self) -> Iterator[None]:
        self._wanted += 1
        self._alone = False
        self._loop.wake()
        with self._turn:
            self._wanted -= 1
            if self._error is not None:
                raise self._error
            yield

    def leave(self) -> None:
        """The caller goes away; what is still under way goes on behind its back."""
        if not self._under_way():
            return
        if self._thread is None:
            self._thread = Thread(target=self._run, name="paceline-pump", daemon=True)
            self._thread.start()
        with self._left:
            self._alone = True
            self._left.notify()

    def close(self) -> None:
        if self._thread is not None:
            with self._left:
                self._over = True
                self._left.notify()
            self._loop.wake()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._over:
            with self._left:
                self._left.wait_for(lambda: self._alone or self._over)
                self._left.wait_for(lambda: not self._alone or self._over, GRACE)
            while self._alone and not self._over:
                with self._turn:
                    if self._wanted or not self._under_way():
                        self._alone = False
                        break
                    try:
                        self._loop.run_once(LONGEST, asleep=True)
                    except BaseException as error:  # told to whoever takes the loop next
                        self._error, self._alone = error, False
