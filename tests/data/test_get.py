"""Getting the data that tests read: what lies somewhere is left alone, and what is no data set is not kept."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paceline.data.source import Source, files
from tests.data.get import get, run


class Letters(ModuleType):
    """A data set of one file, with four bytes."""

    SOURCE = Source("Letters", "letters", "")

    @staticmethod
    def look(folder: Path) -> list[Path] | None:
        return files(folder, "letters.txt")

    @staticmethod
    def load(folder: Path) -> bytes:
        content = Letters.SOURCE.read(folder / "letters.txt", 4)
        if content != b"abcd":
            raise Letters.SOURCE.broken(folder, f"it has {content!r}")
        return content


DATA = Letters("letters")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PACELINE_DATA", raising=False)
    return DATA.SOURCE.cache()


def package(content: bytes) -> Any:
    def unpacked(folder: Path) -> Path:
        (folder / "inside").mkdir()
        (folder / "inside/letters.txt").write_bytes(content)
        return folder / "inside"

    return unpacked


def test_it_is_got_once(cache: Path) -> None:
    assert get(DATA, package(b"abcd")) == f"Letters is in {cache} now"
    assert DATA.load(cache) == b"abcd"
    assert get(DATA, lambda folder: pytest.fail("asked for again")) == f"Letters is in {cache}"


@pytest.mark.parametrize("content", [b"abc", b"abcde"])
def test_what_is_broken_is_not_kept(cache: Path, content: bytes) -> None:
    assert "Letters could not be had, so its tests will be skipped" in get(DATA, package(content))
    assert list(cache.iterdir()) == []


def test_a_command_that_fails_is_told(cache: Path) -> None:
    def asks(*command: str) -> str:
        def refused(folder: Path) -> Path:
            run(folder, *command)
            return folder

        return get(DATA, refused)

    assert asks("sh", "-c", "echo no route >&2; exit 4").endswith("skipped: sh has failed: no route")
    assert "no-such-command" in asks("no-such-command")
