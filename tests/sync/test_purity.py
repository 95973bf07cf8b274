"""Nothing in `sync/` knows a tensor, a socket or a clock."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import paceline.sync

ROOT = Path(paceline.sync.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
FORBIDDEN = {"asyncio", "os", "random", "socket", "subprocess", "threading", "time", "datetime", "secrets", "uuid"}
ALLOWED = (set(sys.stdlib_module_names) - FORBIDDEN) | {"msgspec", "paceline"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_imports_the_standard_library_and_msgspec_only(path: Path) -> None:
    allowed = ALLOWED | ({"numpy"} if path.name == "zipline.py" else set())
    for name in imported(path):
        assert name.split(".")[0] in allowed, f"{path.name} imports {name}"
        assert not name.startswith("paceline") or name.startswith("paceline.sync"), f"{path.name} imports {name}"


@pytest.mark.parametrize("room", ["params", "wire"])
def test_the_other_rooms_below_know_nothing_of_the_rest_either(room: str) -> None:
    for path in sorted((ROOT.parent / room).rglob("*.py")):
        for name in imported(path):
            own = name.startswith(f"paceline.{room}")
            assert own or not name.startswith("paceline"), f"{path.relative_to(ROOT.parent)} imports {name}"


def test_importing_the_core_loads_nothing_heavy() -> None:
    """In a fresh interpreter: no torch, no networking, nothing of the layers above."""
    code = (
        "import sys, paceline.sync;"
        "print(*[m for m in sys.modules if m.split('.')[0] in ('torch', 'typer', 'rich', 'asyncio')"
        " or (m.startswith('paceline.') and not m.startswith('paceline.sync'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split() == []


def test_models_are_small_files() -> None:
    """A newcomer adds a model in under 60 lines; only ElasticBSP, which plans, takes more."""
    for path in (ROOT / "models").glob("*.py"):
        if path.stem not in ("__init__", "base", "elastic_bsp"):
            assert len(path.read_text().splitlines()) < 90, path.name
