"""What can go wrong between nodes, each with a type of its own.

Every error names the node it is about and says what happened. `kind` is how it travels: a node that ends a run for
everyone sends the kind and the words, and the others raise the same type.
"""

from __future__ import annotations

from typing import ClassVar


class NodeError(RuntimeError):
    """The base of all of them."""

    kind: ClassVar[str] = "failed"


class PeerLost(NodeError):
    """A node that the run cannot go on without is gone."""

    kind = "lost"


class Expelled(NodeError):
    """The others have gone on without this worker."""

    kind = "expelled"


class StartFailed(NodeError):
    """The run could not begin."""

    kind = "start"


class WrongModel(NodeError):
    """This worker's parameters are not those of the run."""

    kind = "parameters"


class WrongRequest(NodeError):
    """A request that cannot be carried out; nothing has changed."""

    kind = "request"


class NotFinite(NodeError):
    """A gradient with NaN or Inf was refused."""

    kind = "not finite"


class WaitedTooLong(NodeError):
    """Something took longer than the caller was willing to wait. It may still come."""

    kind = "timeout"


class ScriptFailed(NodeError):
    """A user's script has raised something, or left with a status that is not 0. The words are its traceback."""

    kind = "script"


KINDS: dict[str, type[NodeError]] = {
    error.kind: error
    for error in (
        NodeError,
        PeerLost,
        Expelled,
        StartFailed,
        WrongModel,
        WrongRequest,
        NotFinite,
        WaitedTooLong,
        ScriptFailed,
    )
}


def error_of(kind: str, words: str) -> NodeError:
    """The error that another node has sent."""
    return KINDS.get(kind, NodeError)(words)
