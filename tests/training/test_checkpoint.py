"""A run that goes on from a checkpoint ends where one that never stopped does, whoever takes part in it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict_loader import load

import paceline
from paceline.launch.run import ScriptRun
from paceline.nodes import Job, ScriptFailed
from paceline.params import OptimizerError
from paceline.training import CheckpointError, checkpoint, formats
from tests.training import resuming
from tests.training.resuming import KINDS, build, step, train

SCRIPT = Path(resuming.__file__)
SAVE_AT, STOP, END = 5, 7, 10


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def uninterrupted(kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model, optimizer = build(kind)
    for iteration in range(END):
        step(model, optimizer, iteration)
    return model, optimizer


def run(kind: str, folder: Path, stop: int, *rest: object, workers: int, servers: int, sync: str = "bsp") -> None:
    job = Job(workers=workers, servers=servers, sync=sync, deterministic=sync == "bsp")
    number = len(list(folder.glob("run-*")))
    argv = [kind, str(folder), str(stop), *map(str, rest)]
    with ScriptRun(job, SCRIPT, argv, folder / f"run-{number}") as started:
        for _ in started.updates():
            pass
    if started.error is not None:
        raise started.error


def check_same(model: dict[str, Tensor], optimizer: dict[str, Any], kind: str) -> None:
    expected, theirs = uninterrupted(kind)
    for name, value in expected.state_dict().items():
        assert torch.equal(model[name], value), name
    state = theirs.state_dict()
    for group, other in zip(optimizer["param_groups"], state["param_groups"], strict=True):
        assert {key: group[key] for key in other} == other  # torch adds to groups that were loaded
    assert optimizer["state"].keys() == state["state"].keys()
    for number, remembered in state["state"].items():
        mine = {name: value for name, value in optimizer["state"][number].items() if value is not None}
        assert mine.keys() == {name for name, value in remembered.items() if value is not None}
        for name, value in mine.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(remembered[name])), (number, name)


def check_files(folder: Path, kind: str, workers: int) -> None:
    for rank in range(workers):
        saved = torch.load(folder / f"{rank}.pt", weights_only=True)
        check_same(saved["model"], saved["optimizer"], kind)


@pytest.mark.parametrize("written", ["safetensors", "dcp"])
@pytest.mark.parametrize("kind", KINDS)
def test_alone(kind: str, written: formats.Format, tmp_path: Path) -> None:
    train(kind, tmp_path, STOP, SAVE_AT, format=written, wait=True)
    model, opt = train(kind, tmp_path, END)
    check_same(model.state_dict(), opt.state_dict(), kind)


@pytest.mark.parametrize(
    ("kind", "written", "first", "then"),
    [
        ("momentum", "safetensors", (2, 3), (4, 1)),
        ("adam", "dcp", (2, 1), (1, 2)),
        ("groups", "safetensors", (1, 2), (2, 1)),
        ("own", "safetensors", (2, 2), (1, 3)),
    ],
)
def test_other_numbers_of_workers_and_servers(
    kind: str, written: str, first: tuple[int, int], then: tuple[int, int], tmp_path: Path
) -> None:
    run(kind, tmp_path, STOP, SAVE_AT, written, workers=first[0], servers=first[1])
    run(kind, tmp_path, END, workers=then[0], servers=then[1])
    check_files(tmp_path, kind, then[0])


@pytest.mark.parametrize("kind", ["amsgrad", "adagrad"])
def test_from_a_run_to_one_process_and_back(kind: str, tmp_path: Path) -> None:
    run(kind, tmp_path, STOP, SAVE_AT - 2, "safetensors", workers=2, servers=2)
    train(kind, tmp_path, STOP, SAVE_AT, wait=True)
    run(kind, tmp_path, END, workers=2, servers=1)
    check_files(tmp_path, kind, 2)


def test_under_a_model_that_does_not_wait(tmp_path: Path) -> None:
    run("momentum", tmp_path, STOP, SAVE_AT, "safetensors", workers=2, servers=2, sync="asp")
    model, optimizer = build("momentum")
    loaded = paceline.load_checkpoint(tmp_path / "checkpoints", model, optimizer)
    assert 0 <= loaded.iteration <= SAVE_AT  # that of whoever is furthest behind
    assert optimizer.state_dict()["state"]
    run("momentum", tmp_path, END, workers=2, servers=3, sync="asp")
    assert torch.load(tmp_path / "0.pt", weights_only=True)["optimizer"]["state"]


# Files.


def test_others_can_read_it(tmp_path: Path) -> None:
    model, _ = train("adam", tmp_path, STOP, STOP, wait=True)
    newest = tmp_path / "checkpoints" / f"iteration-{STOP:010d}"
    tensors = load_file(newest / "model.safetensors")
    assert tensors.keys() == model.state_dict().keys()
    assert all(torch.equal(tensors[name], value) for name, value in model.state_dict().items())
    assert "first.weight/exp_avg" in load_file(newest / "optimizer.safetensors")

    opt = paceline.Optimizer(torch.optim.Adam(model.parameters()))
    paceline.save_checkpoint(tmp_path / "other", model, opt, format="dcp", wait=True)
    theirs = {"model": {name: torch.zeros_like(value) for name, value in model.state_dict().items()}}
    load(theirs, checkpoint_id=tmp_path / "other" / "iteration-0000000000" / "dcp", no_dist=True)
    assert all(torch.equal(theirs["model"][name], value) for name, value in model.state_dict().items())


def test_the_newest_are_kept(tmp_path: Path) -> None:
    model, optimizer = build("sgd")
    opt = paceline.Optimizer(optimizer, iteration=7)
    for _ in range(5):
        step(model, opt, 0)
        paceline.save_checkpoint(tmp_path, model, opt, keep=2)
    paceline.save_checkpoint(tmp_path, model, opt, keep=2, wait=True)  # the same iteration once more
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iteration-0000000011", "iteration-0000000012"]
    assert paceline.load_checkpoint(tmp_path, *build("sgd")).iteration == 12
    assert paceline.load_checkpoint(tmp_path / "iteration-0000000011", *build("sgd")).iteration == 11


def test_nothing_there_yet(tmp_path: Path) -> None:
    model, optimizer = build("sgd")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert paceline.load_checkpoint(tmp_path / "none", model, optimizer) == (0, None, None)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_what_goes_wrong_in_the_background_is_raised_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = build("adam")
    opt = paceline.Optimizer(optimizer)
    paceline.save_checkpoint(tmp_path, model, opt, wait=True)
    write = formats.write

    def full(folder: Path, *args: Any) -> None:
        write(folder, *args)
        raise OSError("no space left on device")

    monkeypatch.setattr(formats, "write", full)
    step(model, opt, 0)
    paceline.save_checkpoint(tmp_path, model, opt)
    with pytest.raises(CheckpointError, match="no space left"):
        paceline.save_checkpoint(tmp_path, model, opt)
    assert paceline.load_checkpoint(tmp_path, *build("adam")).iteration == 0
    monkeypatch.undo()
    paceline.save_checkpoint(tmp_path, model, opt, wait=True)
    assert paceline.load_checkpoint(tmp_path, *build("adam")).iteration == 1
    assert not list(tmp_path.glob(".partial*"))


KILLED = """
import sys, torch, paceline
model = torch.nn.Linear(700, 700)
opt = paceline.Optimizer(torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5))
while True:
    for p in model.parameters():
        p.grad = torch.ones_like(p)
        p.data.fill_(opt.iteration + 1)
    opt.step()
    for p in model.parameters():
        p.data.fill_(opt.iteration)
    paceline.save_checkpoint(sys.argv[1], model, opt, format=sys.argv[2], wait=True)
    print(opt.iteration, flush=True)
"""


@pytest.mark.parametrize("written", ["safetensors", "dcp"])
def test_a_killed_process_leaves_whole_checkpoints(written: str, tmp_path: Path) -> None:
    for kill in range(2):
        command = [sys.executable, "-c", KILLED, str(tmp_path), written]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(2 + kill):
                assert process.stdout.readline()  # at least so many are there; the next is under way
            process.send_signal(signal.SIGKILL)
        model = nn.Linear(700, 700)
        loaded = paceline.load_checkpoint(tmp_path, model, torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5))
        assert loaded.iteration >= 2 + kill
        assert all((p == loaded.iteration).all() for p in model.parameters())
        for path in tmp_path.glob("iteration-*"):
            paceline.load_checkpoint(path, model, torch.optim.SGD(model.parameters(), lr=1.0))


# What does not fit.


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    train("adam", tmp_path, 2, 2, wait=True)
    return tmp_path / "checkpoints" / "iteration-0000000002"


def check_refused(path: Path, words: str, model: nn.Module | None = None, kind: str = "adam") -> None:
    """With these words, and without any change."""
    made, optimizer = build(kind)
    if model is not None:
        optimizer = torch.optim.Adam(model.parameters())
    model = model or made
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=words):
        paceline.load_checkpoint(path, model, optimizer)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not optimizer.state


def test_another_optimizer_or_model(saved: Path) -> None:
    check_refused(saved, "of the optimizer Adam; this one is SGD", kind="momentum")
    check_refused(saved, "'weight' is not in it, but in the model", nn.Linear(3, 3))
    other, _ = build("adam")
    other.first = nn.Linear(9, 17)
    check_refused(saved, r"'first.weight' has the shape \(16, 9\) in it, and \(17, 9\) in the model", other)
    smaller, _ = build("adam")
    del smaller.scale
    check_refused(saved, "'scale' is in it, but not in the model", smaller)


def test_other_groups(saved: Path) -> None:
    model, _ = build("adam")
    optimizer = torch.optim.Adam([{"params": [p]} for p in model.parameters()])
    with pytest.raises(CheckpointError, match="it has 1 parameter groups; the optimizer has 9"):
        paceline.load_checkpoint(saved, model, optimizer)


def test_damaged_files(saved: Path) -> None:
    whole = (saved / "model.safetensors").read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"\xff" * len(whole)):
        (saved / "model.safetensors").write_bytes(damaged)
        check_refused(saved, "model.safetensors cannot be read")
    (saved / "model.safetensors").unlink()
    check_refused(saved, "model.safetensors cannot be read")
    (saved / "model.safetensors").write_bytes(whole)
    about = msgspec.json.decode((saved / checkpoint.ABOUT).read_bytes())
    (saved / checkpoint.ABOUT).write_bytes(msgspec.json.encode({**about, "version": 9}))
    check_refused(saved, "has the version 9")
    (saved / checkpoint.ABOUT).write_bytes(b"{")
    check_refused(saved.parent, "cannot be read: .* remove")
    check_refused(saved / "model.safetensors", "is not a folder")


def test_a_hostile_or_damaged_index_runs_nothing(tmp_path: Path) -> None:
    train("adam", tmp_path, 2, 2, wait=True, format="dcp")
    folder = tmp_path / "checkpoints" / "iteration-0000000002" / "dcp"
    index = folder / ".metadata"
    whole = index.read_bytes()

    class Hostile:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    for hostile in (pickle.dumps(Hostile()), pickle.dumps({"a": Hostile()}, protocol=0)):
        index.write_bytes(hostile)
        check_refused(folder.parent, "which has no business there")
    assert not (tmp_path / "ran").exists()
    for damaged in (b"", whole[: len(whole) // 2], pickle.dumps([1, 2])):
        index.write_bytes(damaged)
        check_refused(folder.parent, "cannot be read")
    index.write_bytes(whole)
    data = next(folder.glob("*.distcp"))
    data.write_bytes(data.read_bytes()[:100])
    check_refused(folder.parent, "cannot be read")


def test_wrong_requests(tmp_path: Path) -> None:
    model, optimizer = build("sgd")
    opt = paceline.Optimizer(optimizer)
    with pytest.raises(CheckpointError, match="no format 'onnx'; there are safetensors, dcp"):
        paceline.save_checkpoint(tmp_path, model, opt, format="onnx")  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="keep is 0"):
        paceline.save_checkpoint(tmp_path, model, opt, keep=0)
    with pytest.raises(CheckpointError, match="extra cannot be saved"):
        paceline.save_checkpoint(tmp_path, model, opt, extra=object())
    with pytest.raises(CheckpointError, match="not the model's"):
        paceline.save_checkpoint(tmp_path, nn.Linear(2, 2), opt)
    with pytest.raises(CheckpointError, match="load into torch's own, then wrap that"):
        paceline.load_checkpoint(tmp_path, model, opt)
    with pytest.raises(OptimizerError, match="iteration is -1"):
        paceline.Optimizer(build("sgd")[1], iteration=-1)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_cannot_be_written_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints").chmod(0o500)
    if os.access(tmp_path / "checkpoints", os.W_OK):  # whoever may do anything needs a stronger obstacle
        (tmp_path / "checkpoints").rmdir()
        (tmp_path / "checkpoints").symlink_to("/proc/self/nothing")
    with pytest.raises(ScriptFailed, match="the last checkpoint was not written"):
        run("sgd", tmp_path, STOP, SAVE_AT, "safetensors", workers=2, servers=1)
