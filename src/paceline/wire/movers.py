"""Threads that move large payloads while the loop goes on with other things.

A system call that moves a hundred megabytes needs nobody's attention until it is done. There are as many threads as
there have been payloads under way at a time, and they are kept for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread

Task = Callable[[], None]


class Move:
    """One payload on its way in or out: `call` moves a part of the memory that it is given, and says how much.

    It ends when all is moved, when `call` moves nothing, or with an error.
    """

    def __init__(self, memory: memoryview, call: Callable[[memoryview], int]) -> None:
        self.moved = 0
        self.error: OSError | None = None
        self.over = Event()
        self._memory = memory
        self._call = call

    def __call__(self) -> None:
        try:
            count = 1
            while count and self.moved < self._memory.nbytes:
                count = self._call(self._memory[self.moved :])
                self.moved += count
        except OSError as error:
            self.error = error.with_traceback(None)
        finally:
            self.over.set()


class Movers:
    """All of one loop."""

    def __init__(self) -> None:
        self._threads: list[tuple[Thread, SimpleQueue[Task | None]]] = []
        self._idle: list[SimpleQueue[Task | None]] = []

    def run(self, task: Task) -> None:
        """At once, on a thread."""
        try:
            tasks = self._idle.pop()
        except IndexError:
            tasks = SimpleQueue()
            thread = Thread(target=self._serve, args=(tasks,), name="paceline mover", daemon=True)
            self._threads.append((thread, tasks))
            thread.start()
        tasks.put(task)

    def close(self) -> None:
        """Waits for tasks that are under way."""
        for _, tasks in self._threads:
            tasks.put(None)
        for thread, _ in self._threads:
            thread.join()
        self._threads.clear()
        self._idle.clear()

    def _serve(self, tasks: SimpleQueue[Task | None]) -> None:
        while (task := tasks.get()) is not None:
            task()
            del task  # and the memory that it keeps
            self._idle.append(tasks)
