"""Every form of CIFAR-10 gives the same images, and whatever else is an error of one type."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.data import DataError, cifar10
from tests.data.here import here
from tests.data.pngs import png

ROWS = 4
NAMES = list(cifar10.BATCHES)
RANDOM = np.random.default_rng(1)
PIXELS = {name: RANDOM.integers(0, 256, (ROWS, 3, 32, 32), np.uint8) for name in NAMES}
LABELS = {name: RANDOM.integers(0, 10, ROWS, np.uint8) for name in NAMES}


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "real" not in request.node.name:
        monkeypatch.setattr(cifar10, "ROWS", ROWS)


def binary(name: str) -> bytes:
    return np.concatenate([LABELS[name][:, None], PIXELS[name].reshape(ROWS, -1)], axis=1).tobytes()


def as_python_2_pickles(name: str) -> bytes:
    """A dictionary with a list and an array, opcode by opcode as Python 2 wrote them."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    labels = b"](" + b"".join(b"K" + bytes([label]) for label in LABELS[name]) + b"e"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\0K\1\x87R(K\3" + text(b"|") + b"NNN" + 2 * b"J\xff\xff\xff\xff"
    data = PIXELS[name].tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" + text(b"b") + b"\x87R(K\1"
        b"J" + struct.pack("<i", ROWS) + b"J" + struct.pack("<i", 3072) + b"\x86" + dtype + b"K\0tb\x89"
        b"T" + struct.pack("<i", len(data)) + data + b"tb"
    )
    return b"\x80\x02}(" + text(b"labels") + labels + text(b"data") + array + b"u."


def put_binaries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        (folder / f"{name}.bin").write_bytes(binary(name))


def put_binaries_in_their_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "cifar-10-batches-bin").mkdir()
    put_binaries(folder / "cifar-10-batches-bin", monkeypatch)


def put_pngs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        rows = PIXELS[name].reshape(ROWS, 3, 1024).transpose(0, 2, 1)
        (folder / f"{name}.png").write_bytes(png(rows, [1, 4, 1, 1]))
    labels = [int(label) for name in NAMES for label in LABELS[name]]
    (folder / "train_lables.json").write_text(json.dumps(labels[:-ROWS]))
    (folder / "test_lables.json").write_text(json.dumps(labels[-ROWS:]))


def put_pickles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = folder / "cifar-10-batches-py"
    inner.mkdir()
    contents = {name: as_python_2_pickles(name) for name in NAMES}
    for name, content in contents.items():
        (inner / name).write_bytes(content)
    checksums = {name: f"md5:{md5(content).hexdigest()}" for name, content in contents.items()}
    monkeypatch.setattr(cifar10, "BATCHES", checksums)


def put_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ["readme.html", *(f"{name}.bin" for name in reversed(NAMES))]:
            content = binary(name.removesuffix(".bin")) if name.endswith(".bin") else b"<html>"
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    checksum = f"md5:{md5(path.read_bytes()).hexdigest()}"
    monkeypatch.setattr(cifar10, "ARCHIVE", replace(cifar10.ARCHIVE, checksum=checksum))


FORMS = [put_binaries, put_binaries_in_their_folder, put_pngs, put_pickles, put_archive]


@pytest.mark.parametrize("put", FORMS, ids=lambda put: put.__name__)
def test_every_form_gives_the_same(
    put: Callable[[Path, pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch)
    train, test = cifar10.load(tmp_path)
    for part, names in ((train, NAMES[:-1]), (test, NAMES[-1:])):
        x, y = part.tensors
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (cifar10.MEAN, cifar10.STD))
        bytes_again = ((x * std + mean) * 255).round().numpy().astype(np.uint8)
        assert np.array_equal(bytes_again, np.concatenate([PIXELS[name] for name in names]))
        assert y.tolist() == np.concatenate([LABELS[name] for name in names]).tolist()


@pytest.mark.parametrize("put", FORMS, ids=lambda put: put.__name__)
@pytest.mark.parametrize("harm", ["cut short", "longer", "empty", "noise"])
def test_a_damaged_file_is_named(
    put: Callable[[Path, pytest.MonkeyPatch], None], harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch)
    for path in sorted(path for path in tmp_path.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        if harm == "longer" and path.suffix == ".png":
            continue  # what follows the end of a PNG is not part of it
        harmed = {"cut short": whole[:-1], "longer": whole + b"0", "empty": b"", "noise": b"\xff\0" * (len(whole) // 2)}
        path.write_bytes(harmed[harm])
        with pytest.raises(DataError, match=rf"{path.name} cannot be used as a file of CIFAR-10.*Replace it"):
            cifar10.load(tmp_path)
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "labels", ["[1, 2]", "{}", "[1, 2, 3, 10]", "[1, 2, 3, -1]", '["1", 2, 3, 4]', "[1e999]", "[[["]
)
def test_classes_that_cannot_be_are_refused(labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_pngs(tmp_path, monkeypatch)
    (tmp_path / "test_lables.json").write_text(labels)
    with pytest.raises(DataError, match=r"test_lables\.json cannot be used"):
        cifar10.load(tmp_path)


class Trap:
    """What a pickle can do to those who open it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("known", [False, True], ids=["of another checksum", "whatever its checksum"])
def test_a_pickle_that_does_something_is_not_let(known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_pickles(tmp_path, monkeypatch)
    path, sprung = tmp_path / "cifar-10-batches-py" / "data_batch_1", tmp_path / "sprung"
    trap = pickle.dumps(Trap(sprung))
    path.write_bytes(trap)
    if known:
        monkeypatch.setitem(cifar10.BATCHES, "data_batch_1", f"md5:{md5(trap).hexdigest()}")
    with pytest.raises(DataError, match="is not for a data set" if known else "its checksum is"):
        cifar10.load(tmp_path)
    assert not sprung.exists()


def test_the_real_images() -> None:
    train, test = cifar10.load(here(cifar10))
    (x, y), (_, test_y) = train.tensors, test.tensors
    assert y.bincount().tolist() == [5000] * 10
    assert test_y.bincount().tolist() == [1000] * 10
    assert y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert test_y[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert x.mean((0, 2, 3)).abs().max() < 0.001
    assert (x.std((0, 2, 3)) - 1).abs().max() < 0.001
