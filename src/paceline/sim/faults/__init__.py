"""The core where things go wrong, in virtual time: `draw` says what, `strikes` does it, and `storm` runs it."""
