"""Where a data set lies: the usual places on this machine, and where else it can be had from."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar
from uuid import uuid4

PATIENCE = 30.0  # seconds without a byte before a download is given up
CHUNK = 1 << 20

Found = TypeVar("Found")


class DataError(RuntimeError):
    """A data set that is not to be had, or a file of it that is not what it should be. The message says what to do."""


@dataclass(frozen=True)
class Download:
    """A file of the official source: how large it may be at most, and what its checksum is, as `md5:…`."""

    url: str
    limit: int
    checksum: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Source:
    """A data set: its name, its folder in the usual places, further places, and what is downloaded else."""

    name: str
    folder: str
    advice: str
    others: tuple[str, ...] = ()
    downloads: tuple[Download, ...] = ()

    def cache(self) -> Path:
        """Where downloads go."""
        return Path(os.path.expanduser("~/.cache/paceline")) / self.folder

    def places(self) -> list[Path]:
        """Where to look, in this order. `PACELINE_DATA` names a folder that has one for each data set."""
        named = os.environ.get("PACELINE_DATA")
        chosen = [Path(os.path.expanduser(named)) / self.folder] if named else []
        return [*chosen, *(Path(other) for other in self.others), self.cache()]

    def find(self, folder: str | Path | None, look: Callable[[Path], Found | None]) -> Found:
        """What `look` sees in the first place where it sees something. Downloads if there is none.

        With a `folder`, that is the only place, and nothing is downloaded.
        """
        places = self.places() if folder is None else [Path(folder)]
        for place in places:
            if (found := look(place)) is not None:
                return found
        if folder is not None:
            raise self._missing(places, "")
        try:
            for download in self.downloads:
                fetch(download, self.cache())
        except DataError as error:
            raise self._missing(places, f" {error}.") from error
        if (found := look(self.cache())) is None:
            raise self._missing(places, "")
        return found

    def read(self, path: Path, limit: int) -> bytes:
        """What is in a file, unpacked if its name ends in `.gz`. One with more than `limit` bytes is not read on."""
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                content = file.read(limit + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise self.broken(path, str(error)) from error
        if len(content) > limit:
            raise self.broken(path, f"it has more than {limit} bytes")
        return content

    def check(self, path: Path, expected: str) -> None:
        """Sees that a file that was found has its checksum."""
        try:
            got = checksum(path, expected)
        except OSError as error:
            raise self.broken(path, str(error)) from error
        if got != expected:
            raise self.broken(path, f"its checksum is {got}, not {expected}")

    def broken(self, path: Path, why: str) -> DataError:
        """A file was found, and is not what it should be."""
        return DataError(f"{path} cannot be used as a file of {self.name}: {why}. Replace it. {self.advice}")

    def _missing(self, places: list[Path], why: str) -> DataError:
        looked = ", ".join(str(place) for place in places)
        return DataError(f"{self.name} is not here: looked in {looked}.{why} {self.advice}")


def files(folder: Path, *names: str) -> list[Path] | None:
    """These files of a folder, if it has all of them."""
    paths = [folder / name for name in names]
    return paths if all(os.path.isfile(path) for path in paths) else None


def checksum(path: Path, like: str) -> str:
    """A file's checksum, by the same algorithm as another: `md5:…` or `sha256:…`."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def fetch(download: Download, folder: Path) -> Path:
    """Downloads under a temporary name, and renames once the checksum is right. Several may do so at once."""
    path = folder / download.name
    part = folder / f".{download.name}.{uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists() and checksum(path, download.checksum) == download.checksum:
            return path
        try:
            with part.open("wb") as file:
                _copy(download, file)
            if (got := checksum(part, download.checksum)) != download.checksum:
                raise DataError(f"Downloading {download.url} gave another file: {got}, not {download.checksum}")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"Downloading {download.url} failed: {error}") from error
    return path


def _copy(download: Download, file: IO[bytes]) -> None:
    left = download.limit
    with urllib.request.urlopen(download.url, timeout=PATIENCE) as answer:
        while chunk := answer.read(CHUNK):
            left -= len(chunk)
            if left < 0:
                raise DataError(f"Downloading {download.url} gave more than {download.limit} bytes")
            file.write(chunk)
