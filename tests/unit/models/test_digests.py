"""Digests of files, remembered only of settled ones."""

import os
import shutil
import time
from pathlib import Path

import pytest

from dlstep.models import digests as digests_module
from dlstep.models.digests import digests, identify


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache folder of this test's own, in which digests of small files are remembered as well."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(digests_module, "LEAST_REMEMBERED", 0)
    return tmp_path / "cache" / "dlstep" / "digests"


def settle(*files: Path) -> None:
    """Give files times long ago, so that their digests are remembered."""
    for file in files:
        os.utime(file, ns=(10**18, 10**18))


def test_a_digest_depends_on_every_byte_and_on_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests_module, "PIECE", 1000)
    monkeypatch.setattr(digests_module, "CHUNK", 300)
    contents = [
        b"",
        b"\0",
        b"a" * 2000 + b"b" * 1000,
        b"a" * 1000 + b"b" * 1000 + b"a" * 1000,
        b"a" * 3000,
        b"a" * 2999,
        b"a" * 3001,
    ]
    files = [tmp_path / str(number) for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    found = digests([identify(file) for file in files])
    assert len(set(found)) == len(contents)
    assert digests([identify(files[3]), identify(files[0]), identify(files[3])], threads=1) == [found[3], found[0], found[3]]


def test_a_settled_file_is_read_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"1" * 100)
    settle(file)
    monkeypatch.setattr(digests_module, "SETTLED_NS", -(10**15))  # ctime cannot be set: let it count as long ago
    (first,) = digests([identify(file)])
    reads: list[object] = []
    whole = digests_module._digest_of_piece
    monkeypatch.setattr(digests_module, "_digest_of_piece", lambda piece: reads.append(piece) or whole(piece))
    assert digests([identify(file)]) == [first] and reads == []
    file.write_bytes(b"2" * 100)  # the same size
    settle(file)  # and the same time of the content: the inode's own time tells
    assert digests([identify(file)]) != [first] and len(reads) == 1
    for entry in cache.iterdir():
        entry.write_text('{"file": 3}')  # what somebody else wrote is not believed
    (again,) = digests([identify(file)])
    assert again != first and len(reads) == 2
    shutil.rmtree(cache)
    cache.write_text("no folder")
    assert digests([identify(file)]) == [again]


def test_a_file_that_changed_lately_is_not_remembered(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changes within one tick of the file system's clock leave size, inode and times equal."""
    file = tmp_path / "weights"
    file.write_bytes(b"1" * 100)
    frozen = identify(file)
    monkeypatch.setattr(digests_module, "identify", lambda path: frozen)
    (first,) = digests([frozen])
    file.write_bytes(b"2" * 100)
    assert digests([frozen]) != [first]
    assert not cache.exists()
    monkeypatch.setattr(time, "time_ns", lambda: frozen.ctime_ns + digests_module.SETTLED_NS + 1)
    (second,) = digests([frozen])
    assert len(list(cache.iterdir())) == 1 and digests([frozen]) == [second]
