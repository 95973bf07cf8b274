"""Data sets are found where they usually lie, else downloaded and checked; what goes wrong says what to do."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from urllib.error import URLError

import pytest

from paceline.data import DataError, cifar10, fashion_mnist, text
from paceline.data.source import Download, Source, fetch, files

CONTENT = b"to be or not to be" * 1000
CHECKSUM = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working folder with nothing in them, and no proxy."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("PACELINE_DATA", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


@dataclass
class Site:
    """A web site on this machine that has one file, or what is said of it."""

    url: str
    content: bytes = CONTENT
    length: int | None = None
    asked: int = 0


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.asked += 1
            if not self.path.endswith("/play.txt"):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(web.content) if web.length is None else web.length))
            self.end_headers()
            self.wfile.write(web.content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        web = Site(f"http://127.0.0.1:{server.server_port}/play.txt")
        yield web
        server.shutdown()
        thread.join()


def source(site: Site, **changes: object) -> Source:
    download = Download(site.url, 2 * len(CONTENT), CHECKSUM)
    made = Source("Hamlet", "hamlet", "Put play.txt into ~/.cache/paceline/hamlet.", ("plays",), (download,))
    return replace(made, **changes)  # type: ignore[arg-type]


def play(folder: Path) -> list[Path] | None:
    return files(folder, "play.txt")


def put(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "play.txt").write_bytes(CONTENT)
    return folder / "play.txt"


def test_places_are_looked_in_from_the_chosen_one_to_the_cache(
    home: Path, site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hamlet = source(site)
    cached = put(home / ".cache/paceline/hamlet")
    assert hamlet.find(None, play) == [cached]
    usual = put(Path("plays"))
    assert hamlet.find(None, play) == [usual]
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path / "chosen"))
    assert hamlet.find(None, play) == [usual]
    chosen = put(tmp_path / "chosen/hamlet")
    assert hamlet.find(None, play) == [chosen]
    given = put(tmp_path / "given")
    assert hamlet.find(tmp_path / "given", play) == [given]
    assert site.asked == 0


def test_what_is_nowhere_is_downloaded_once(home: Path, site: Site) -> None:
    for _ in range(2):
        [path] = source(site).find(None, play)
        assert path == home / ".cache/paceline/hamlet/play.txt"
        assert path.read_bytes() == CONTENT
        assert [file.name for file in path.parent.iterdir()] == ["play.txt"]
    assert site.asked == 1


def test_what_was_downloaded_before_is_kept_and_what_is_not_whole_is_replaced(home: Path, site: Site) -> None:
    path = home / "play.txt"
    fetch(Download(site.url, len(CONTENT), CHECKSUM), home)
    fetch(Download(site.url, len(CONTENT), CHECKSUM), home)
    assert site.asked == 1
    path.write_bytes(CONTENT[:-1])
    fetch(Download(site.url, len(CONTENT), CHECKSUM), home)
    assert path.read_bytes() == CONTENT


def test_a_folder_that_is_given_is_the_only_place_and_nothing_is_downloaded(site: Site, tmp_path: Path) -> None:
    put(Path("plays"))
    with pytest.raises(DataError, match=r"Hamlet is not here: looked in .*/nothing\. Put play\.txt into"):
        source(site).find(tmp_path / "nothing", play)
    assert site.asked == 0


@pytest.mark.parametrize(
    ("content", "length", "why"),
    [
        (b"to be", None, f"another file: md5:{hashlib.md5(b'to be').hexdigest()}, not {CHECKSUM}"),
        (b"", None, "another file"),
        (CONTENT[:-1], len(CONTENT), "another file|failed"),
        (CONTENT * 3, None, "more than 36000 bytes"),
    ],
    ids=["wrong", "empty", "cut short", "too large"],
)
def test_a_download_that_is_not_the_file_leaves_nothing_behind(
    content: bytes, length: int | None, why: str, home: Path, site: Site
) -> None:
    site.content, site.length = content, length
    with pytest.raises(DataError, match=why) as caught:
        source(site).find(None, play)
    assert "looked in plays, " in str(caught.value)
    assert "Put play.txt into" in str(caught.value)
    assert list((home / ".cache/paceline/hamlet").iterdir()) == []


def test_a_site_without_the_file_says_so(site: Site) -> None:
    missing = Download(site.url.replace("play", "poem"), 10, CHECKSUM)
    with pytest.raises(DataError, match=r"Downloading http://.*/poem\.txt failed: .*404"):
        source(site, downloads=(missing,)).find(None, play)


def test_a_cache_that_cannot_be_written_says_so(home: Path, site: Site) -> None:
    home.mkdir()
    (home / ".cache").write_text("not a folder")
    with pytest.raises(DataError, match="Not a directory"):
        source(site).find(None, play)


@pytest.mark.parametrize("data", [fashion_mnist, cifar10, text], ids=lambda data: data.SOURCE.folder)
def test_without_data_and_network_one_is_told_where_it_was_looked_for_and_what_to_do(
    data: ModuleType, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    monkeypatch.setattr(data, "SOURCE", replace(data.SOURCE, others=("nowhere",)))
    with pytest.raises(DataError) as caught:
        data.load()
    message = str(caught.value)
    cache = home / ".cache" / "paceline" / data.SOURCE.folder
    assert message.startswith(f"{data.SOURCE.name} is not here: looked in nowhere, {cache}. Downloading https://")
    assert "no route to host" in message
    assert f"into ~/.cache/paceline/{data.SOURCE.folder}." in message


def test_a_file_is_not_read_past_its_limit(tmp_path: Path, site: Site) -> None:
    hamlet = source(site)
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(bytes(1 << 20)))
    assert hamlet.read(bomb, 1 << 20) == bytes(1 << 20)
    with pytest.raises(DataError, match=r"bomb\.gz cannot be used .* more than 1000 bytes\. Replace it\. Put play"):
        hamlet.read(bomb, 1000)


PACKED = gzip.compress(CONTENT, mtime=0)


@pytest.mark.parametrize(
    "content", [b"", b"text", PACKED[:-9], PACKED[:-1] + b"x"], ids=["empty", "text", "cut", "wrong"]
)
def test_a_packed_file_that_is_damaged_says_so(content: bytes, tmp_path: Path, site: Site) -> None:
    path = tmp_path / "play.gz"
    path.write_bytes(content)
    if content == b"":
        assert source(site).read(path, 10) == b""
    else:
        with pytest.raises(DataError, match=r"play\.gz cannot be used as a file of Hamlet"):
            source(site).read(path, len(CONTENT))
