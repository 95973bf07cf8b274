"""A worker's process that runs a user's script, as `python SCRIPT ARGUMENTS` would, with a place in a run."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from typing import Any

import msgspec

from paceline.launch.environment import SEED, Place, environment_of
from paceline.launch.node import Post
from paceline.launch.run_file import RunFile
from paceline.nodes import NodeError, PeerLost, ScriptFailed
from paceline.training.session import Measurement, Progress, Session, set_session


def run(post: Post) -> dict[str, Any]:
    """What `LocalCluster` calls in every worker. Returns how far it came, and whether it took part at all."""
    script, argv, folder = (post.arguments[name] for name in ("script", "argv", "folder"))
    place = Place(post.number, post.job.workers, post.number, folder, "paceline run")
    os.environ.update(environment_of(place) | {SEED: str(post.job.seed)})
    sys.argv = [script, *argv]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def report(news: Progress | Measurement) -> None:
        post.say(msgspec.to_builtins(news))

    current = Session(place, RunFile.read(folder), report)
    set_session(current)
    if current.by_ddp:
        post.when_let_go(lambda: current.end(PeerLost("whoever started the run is gone")))
    well = False
    try:
        runpy.run_path(script, run_name="__main__")
        current.settle()
        well = True
    except SystemExit as leaving:
        well = leaving.code in (None, 0)
        if not well:
            raise ScriptFailed(f"{script} left with status {leaving.code}") from None
    except NodeError:
        raise  # the run is over, whoever's fault it is
    except BaseException as error:
        raise current.failure or ScriptFailed(_story(error)) from None
    finally:
        joined = current.joined
        current.leave(well=well)
        set_session(None)
    return {"joined": joined, "progress": msgspec.to_builtins(current.progress())}


def _story(error: BaseException) -> str:
    """The traceback from the user's own first line on."""
    lines = error.__traceback__
    while lines is not None and lines.tb_frame.f_code.co_filename != sys.argv[0]:
        lines = lines.tb_next
    return "".join(traceback.format_exception(type(error), error, lines or error.__traceback__)).rstrip()
