"""A checkpoint that is written in the background."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, read or used."""


class Saving:
    """One at a time, if there is one."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def start(self, write: Callable[[], None]) -> None:
        """The process does not end before it is done."""
        self.wait()

        def run() -> None:
            try:
                write()
            except BaseException as error:
                self._error = error

        self._thread = Thread(target=run, name="paceline checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Until it is written. Raises why it was not."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise CheckpointError(f"the last checkpoint was not written: {error}") from error
