"""How far long work is, said where nobody could see a line change."""

from __future__ import annotations

import pytest

from paceline.observe import terminal
from paceline.observe.terminal import PLAIN_EVERY, saying


def test_where_no_line_can_change_it_is_said_every_minute_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(terminal, "monotonic", lambda: now)
    with saying("all of it") as say:
        for now in (100.0, 100.0 + PLAIN_EVERY - 1, 100.0 + PLAIN_EVERY, 101.0 + PLAIN_EVERY, 100.0 + 2 * PLAIN_EVERY):
            say(f"[bold]{now:g} of 300, which is a text that is longer than most of the lines that are shown elsewhere")
    out, err = capsys.readouterr()
    assert out == ""
    assert [line[:26] for line in err.splitlines()] == ["all of it: [bold]160 of 30", "all of it: [bold]220 of 30"]
