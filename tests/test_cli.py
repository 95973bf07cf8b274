"""The command line: what it prints, what it refuses, and that both can be read by people and by programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest
from typer.testing import CliRunner, Result

from paceline.cli import app, main
from paceline.sim.cli import SHOWN
from paceline.sync import MODELS

SMALL = ("--paces", "1,1,3", "--seconds", "9", "--jitter", "0")


def call(*arguments: str, columns: int | None = None) -> Result:
    env = {"COLUMNS": None if columns is None else str(columns), "FORCE_COLOR": None, "NO_COLOR": None}
    return CliRunner().invoke(app, list(arguments), env=env)


def fine(*arguments: str, columns: int | None = None) -> str:
    result = call(*arguments, columns=columns)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def process(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The real thing, its output in pipes."""
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")}
    command = [sys.executable, "-m", "paceline.cli", *arguments]
    return subprocess.run(
        command, env={**clean, "PYTHONUTF8": "1", **env}, capture_output=True, text=True, encoding="utf-8", timeout=60
    )


# demo


def test_demo_shows_every_model_and_who_is_waited_for() -> None:
    text = fine("simulate")
    titles = [line.split(":")[0] for line in text.splitlines()]
    for model in SHOWN:
        assert model.replace("(R=15)", "") in titles
    assert "·3·" in text
    assert max(map(len, text.splitlines())) == 100


def test_demo_fits_the_columns() -> None:
    assert max(map(len, fine("simulate", columns=80).splitlines())) <= 80
    assert max(map(len, fine("simulate", columns=120).splitlines())) == 120


def test_demo_takes_the_user_s_workers_and_models() -> None:
    text = fine("simulate", *SMALL, "--sync", "asp", "--sync", "bsp")
    assert text.index("asp: ") < text.index("bsp: ")
    assert "worker 2 (3s)" in text
    assert "worker 3" not in text
    assert "9 iterations · 1.00x bsp · 6 held pulls" in text
    assert "21 iterations · 2.33x bsp · 0 held pulls" in text


def test_demo_compares_with_bsp_even_if_it_is_not_shown() -> None:
    text = fine("simulate", *SMALL, "--sync", "asp")
    assert "2.33x bsp" in text
    assert "bsp: " not in text.replace("vs bsp: ", "")


def test_demo_as_json_has_all_figures_and_spans() -> None:
    document = json.loads(fine("simulate", *SMALL, "--sync", "bsp", "--sync", "drop(n_t=2)", "--shards", "2", "--json"))
    machines = document["cluster"]
    assert ([group["seconds"] for group in machines["workers"]], document["seconds"]) == ([1, 1, 3], 9)
    assert machines["servers"]["count"] == 2
    bsp, drop = document["models"]
    assert (bsp["model"], bsp["iterations"], bsp["vs_bsp"], bsp["held_pulls"]) == ("bsp", 9, 1.0, 12)
    assert drop["vs_bsp"] == 18 / 9
    assert drop["vs_bsp_long_run"] == 360 / 180
    wait = bsp["lanes"][0]["spans"][1]
    assert wait == {"start": 1, "end": 3, "kind": "waiting", "iteration": 0, "waiting_for": [2], "wasted": 0}


def test_demo_depends_on_the_seed_alone() -> None:
    assert fine("simulate", "--json", "--seed", "1") == fine("simulate", "--json", "--seed", "1")
    assert fine("simulate", "--json", "--seed", "1") != fine("simulate", "--json", "--seed", "2")


def test_demo_has_an_answer_where_bsp_has_done_nothing_yet() -> None:
    assert json.loads(fine("simulate", "--seconds", "0.5", "--sync", "asp", "--json"))["models"][0]["vs_bsp"] is None
    assert "0 iterations · - bsp" in fine("simulate", "--seconds", "0.5", "--sync", "asp")


def test_a_model_of_the_user_s_own_that_breaks_an_invariant_is_told_with_its_story() -> None:
    result = call("simulate", "--sync", "tests.sim.test_timeline:Boundless(s=1)")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("ssp_bounds_the_gap: ")
    assert "Pulled(" in result.stderr


# models


def test_models_lists_all_of_them() -> None:
    text = fine("models", columns=200)
    for name in MODELS:
        assert any(line.startswith((f"{name}(", f"{name} ")) for line in text.splitlines()), name
    assert "pssp(s, c=none, alpha=none, coin=worker, release=lazy)" in text
    assert max(map(len, fine("models", columns=80).splitlines())) <= 80


def test_models_as_json() -> None:
    listed = json.loads(fine("models", "--json"))
    assert [about["name"] for about in listed] == list(MODELS)
    esync = next(about for about in listed if about["name"] == "esync")
    assert esync["update"] == "round"
    assert next(parameter for parameter in esync["parameters"] if parameter["name"] == "max_steps") == {
        "name": "max_steps",
        "allowed": "a whole number from 1, or inf",
        "required": False,
        "default": "inf",
    }


def test_models_explains_an_expression() -> None:
    text = fine("models", "pssp(3, 1/4)")
    assert text.startswith("pssp(s=3, c=0.25)\n")
    assert "it waits with probability 0.25" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["s", "3", "must", "be", "given", "a", "whole", "number", "from", "0"] in rows
    assert "shares its regret bound with ssp(s=6)." in text
    assert json.loads(fine("models", "pssp(s=3, c=0.25)", "--json"))["same_regret_as"] == 6
    assert json.loads(fine("models", "pssp(s=3, c=0)", "--json"))["same_regret_as"] == "inf"


def test_models_explains_a_bare_name() -> None:
    assert "must be given" in fine("models", "pssp")
    assert "nobody ever waits" in fine("models", "asp")
    assert "regret" not in fine("models", "ssp(s=3)")


# The rest.


def test_version_and_help_have_what_people_look_for() -> None:
    assert fine("--version") == fine("--version", "simulate") == f"paceline {version('paceline')}\n"
    assert "simulate" in fine()
    assert fine() == fine("--help")
    for verb in ("simulate", "faults", "models", "replay", "demo", "run", "serve", "sync"):
        assert f"Example: paceline {verb}" in fine(verb, "--help")


@pytest.mark.parametrize(
    "verb", [("--help",), ("models",), ("simulate", "--help"), ("bench", "--help"), ("run", "--help")]
)
def test_nobody_waits_for_torch_who_only_reads(verb: tuple[str, ...]) -> None:
    code = "import sys; from paceline.cli import app; app(sys.argv[1:], standalone_mode=False)"
    code += "; assert not {'torch', 'matplotlib', 'sklearn'} & set(sys.modules), 'loaded'"
    subprocess.run([sys.executable, "-c", code, *verb], check=True, capture_output=True, timeout=60)


def test_the_installed_command_is_this_one() -> None:
    (command,) = entry_points(group="console_scripts", name="paceline")
    assert command.load() is main


ERRORS = [
    (("simulate", "--sync", "spp(s=3)"), "there is no model 'spp', did you mean 'ssp'?"),
    (("simulate", "--sync", "ssp(s=-1)"), "ssp: s=-1 is not allowed; s is a whole number from 0, or inf"),
    (("simulate", "--sync", "ssp"), "ssp needs s, a whole number from 0, or inf"),
    (("simulate", "--sync", "[bold]x[/bold]"), "'[bold]x[/bold]' is not an expression"),
    (("simulate", "--sync", "ssp(\n\x1b[31m)"), "cannot read the parameters ( ?[31m)"),
    (("simulate", "--paces", "1,fast"), "--paces '1,fast' are not seconds per iteration; give a number above 0"),
    (("simulate", "--paces", ""), "--paces '' are not seconds per iteration"),
    (("simulate", "--paces", "1,-2"), "--paces '1,-2' are not seconds per iteration"),
    (("simulate", "--paces", "1,nan"), "--paces '1,nan' are not seconds per iteration"),
    (("simulate", "--seconds", "-3"), "--seconds -3 is not a time to show; give a number above 0"),
    (("simulate", "--seconds", "inf"), "--seconds inf is not a time to show"),
    (("simulate", "--seconds", "soon"), "--seconds"),
    (("simulate", "--shards", "0"), "--shards 0 is too few; give a whole number from 1"),
    (("simulate", "--jitter", "1.5"), "jitter is 1.5; give a share from 0 to below 1"),
    (("simulate", "--latency", "-1"), "latency of -1"),
    (("simulate", "--paces", "0.000001", "--seconds", "24"), "give fewer --seconds"),
    (("simulate", "--frob"), "--frob"),
    (("frobnicate",), "frobnicate"),
    (("models", "nope"), "there is no model 'nope'"),
]


@pytest.mark.parametrize(("arguments", "complaint"), ERRORS)
def test_what_is_wrong_is_told_in_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("paceline: ")
    assert complaint in line


def test_a_real_process_prints_plain_text_into_a_pipe() -> None:
    done = process("simulate")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) == 100
    assert json.loads(process("simulate", "--json").stdout)["seconds"] == 24


def test_a_real_process_obeys_the_environment() -> None:
    assert "\x1b[32m" in process("simulate", FORCE_COLOR="1").stdout
    assert "\x1b[32m" not in process("simulate", FORCE_COLOR="1", NO_COLOR="1").stdout
    assert process("simulate", "--sync", "bsp", PYTHONUTF8="0", PYTHONIOENCODING="ascii").stdout.isascii()


def test_a_real_process_fails_without_a_traceback() -> None:
    done = process("simulate", "--sync", "nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "there is no model 'nope'" in done.stderr
