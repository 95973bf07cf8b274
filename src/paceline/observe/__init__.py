"""What people look at: the terminal's view of who waits, and for whom."""

from paceline.observe.timeline import Compared, draw, words

__all__ = ["Compared", "draw", "words"]
