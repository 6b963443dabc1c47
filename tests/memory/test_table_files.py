"""The files: what is no table is removed, rights are private, a full disk is an error and no crash."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import psutil
import pytest

from localspec.errors import LocalspecError, NewerFormat, StorageError
from localspec.memory.sources import tag_of
from localspec.memory.table import HEADER_BYTES, INSERTED_AT, NUMBER, VERSION
from localspec.memory.table_files import TableFiles, name_of
from tests.memory.tables import FP, files_in, python, table_in, words

Damage = Callable[[Path], object]


def set_version(path: Path, version: int) -> None:
    content = bytearray(path.read_bytes())
    content[8:12] = version.to_bytes(4, "little")
    path.write_bytes(content)


HOSTILE: dict[str, Damage] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-64]),
    "older": lambda path: set_version(path, VERSION - 1),
    "foreign": lambda path: path.write_bytes(b"SQLite format 3\0" * 400),
}


@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_table_is_removed_and_a_new_one_started(tmp_path: Path, damage: Damage) -> None:
    table = table_in(tmp_path)
    table.insert(words([5]), words([1]), 3, 1)
    table.close()
    damage(table.path)
    notices: list[str] = []
    files = TableFiles(tmp_path / FP, notices.append, bits=6)
    assert files.open("user") is None
    fresh = files.open_or_create("user", None)
    assert len(notices) == 1 and str(table.path) in notices[0]
    assert fresh.find([5]) is None
    files.open_or_create("user", None)
    assert len(notices) == 1


@pytest.mark.skipif(os.name != "posix", reason="rights of POSIX")
def test_files_and_directories_are_their_owners_only(tmp_path: Path) -> None:
    files = TableFiles(tmp_path / "memory" / FP, pytest.fail, bits=6)
    old_mask = os.umask(0)
    try:
        files.open_or_create("user", None)
        files.sources("user").add("run")
        files.sources("user").remove("run")
    finally:
        os.umask(old_mask)
    paths = [tmp_path / "memory", *(tmp_path / "memory").rglob("*")]
    assert len(paths) >= 5
    for path in paths:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_the_file_is_written_in_full_before_it_is_mapped(tmp_path: Path) -> None:
    table = table_in(tmp_path, bits=12)
    status = table.path.stat()
    assert status.st_size == HEADER_BYTES + (16 << 12)
    assert getattr(status, "st_blocks", status.st_size) * 512 >= status.st_size


FULL_DISK = """
import resource, sys
from pathlib import Path
from localspec.errors import DiskFull
from tests.memory.tables import files_in
files, (_, hard) = files_in(Path(sys.argv[1])), resource.getrlimit(resource.RLIMIT_FSIZE)
for limit in (2000, 4096 + 512, 1 << 20):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        files.open_or_create("user", None)
    except DiskFull as error:
        print(error.code)
    print(*sorted(path.name for path in files.folder.iterdir()))
"""


@pytest.mark.skipif(os.name != "posix", reason="a limit of file sizes is a thing of POSIX")
def test_a_full_disk_is_a_typed_error_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    assert python(FULL_DISK, tmp_path).split() == [*["disk_full", "lock"] * 2, "lock", "user.ngm"]


def test_leftovers_of_a_kill_are_removed_with_their_table(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    with files.lock():
        for name in ("user.tmp", ".user.sources.x1"):
            (files.folder / name).write_bytes(b"half")
    assert files.open_or_create("user", None).find([5]) is None
    files.forget("user")
    assert [path.name for path in files.folder.iterdir()] == ["lock"]


def test_a_forget_that_was_killed_half_way_brings_nothing_back(tmp_path: Path) -> None:
    """It had not yet removed the file."""
    files = files_in(tmp_path)
    old = files.open_or_create("user", None)
    old.insert(words([5]), words([1]), 3, 1)
    old.forget_all()
    assert files.open("user") is None
    fresh = files.open_or_create("user", None)
    assert fresh.find([5]) is None and old.is_forgotten and not fresh.is_forgotten


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what was read")
def test_a_large_table_is_not_read_to_be_opened(tmp_path: Path) -> None:
    files = files_in(tmp_path, bits=20)
    files.open_or_create("user", None).close()
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 1 << 20)

    process, size = psutil.Process(), path.stat().st_size
    before = process.io_counters().read_chars
    table = files.open("user")
    read = process.io_counters().read_chars - before
    mapped = sum(each.rss for each in process.memory_maps(grouped=False) if each.path == str(path))
    assert table is not None and 0 < read + mapped < size / 4
    table.close()


def test_a_wait_too_long_for_the_lock_is_an_error(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.open_or_create("user", None)

    def wait() -> None:
        with files_in(tmp_path).lock(timeout=0.01):
            pass

    with files.lock(), ThreadPoolExecutor(1) as pool:
        error = pool.submit(wait).exception()
    assert isinstance(error, StorageError) and error.remedy


@pytest.mark.parametrize(
    "change",
    [
        lambda files: files.note("user", "chat:1"),
        lambda files: files.forget_source("user", "chat:1"),
        lambda files: files.forget("user"),
        lambda files: files.open_or_create("user", None),
    ],
    ids=["note", "forget source", "forget", "create"],
)
def test_a_deleted_home_is_not_created_again(tmp_path: Path, change: Callable[[TableFiles], object]) -> None:
    (tmp_path / "data").mkdir()
    files = TableFiles(tmp_path / "data" / "memory" / FP, pytest.fail, bits=6)
    table = files.open_or_create("user", None)
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(LocalspecError, match="memory cannot be used: No such file"):
        change(files)
    table.close()
    assert not (tmp_path / "data").exists()


def test_a_newer_versions_file_is_left_for_it(tmp_path: Path) -> None:
    """One run of an older version must not remove everything."""
    table = table_in(tmp_path)
    table.close()
    set_version(table.path, VERSION + 1)
    notices: list[str] = []
    files = TableFiles(tmp_path / FP, notices.append, bits=6)
    content = table.path.read_bytes()
    assert files.open("user") is None
    with pytest.raises(NewerFormat, match=f"version {VERSION + 1}"):
        files.open_or_create("user", None)
    assert table.path.read_bytes() == content
    files.forget("user")
    assert not table.path.exists()


def test_an_absurd_counter_is_counted_on(tmp_path: Path) -> None:
    """No checksum covers it."""
    table = table_in(tmp_path)
    top = 2**64 - 1
    NUMBER.pack_into(table._map, INSERTED_AT, top)
    table.count(5)
    assert NUMBER.unpack_from(table._map, INSERTED_AT) == (4,)


def test_a_path_that_is_no_unicode_has_one_name(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"w\xff")
    table = table_in(tmp_path / "memory", str(odd))
    assert table.header.workspace == f"{tmp_path}/w\\udcff" and table.header.workspace.encode()
    assert name_of(table.header.workspace) == name_of(str(odd))


def test_a_source_is_forgotten_only_where_it_taught(tmp_path: Path) -> None:
    """Another's entries may have its tag."""
    files = files_in(tmp_path)
    table = files.open_or_create("user", None)
    table.insert(words([5]), words([1]), 3, tag_of("chat:1"))
    twin = next(name for n in count() if tag_of(name := f"run {n}") == tag_of("chat:1"))
    files.sources("user").add(twin)
    assert files.forget_source("user", "chat:1") == 0
    assert table.find([5]) is not None
