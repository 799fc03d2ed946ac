"""A backup takes the store's place, and what was there is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.errors import NotFound, Refused
from harken.operate.store_copy_restore import HEADER, restore


def database(path: Path, content: bytes) -> Path:
    path.write_bytes(HEADER + content)
    return path


def test_the_old_store_goes_aside_with_its_log(tmp_path: Path) -> None:
    store, backup = database(tmp_path / "harken.db", b"old"), database(tmp_path / "copy.db", b"new")
    (tmp_path / "harken.db-wal").write_bytes(b"log")
    answer = restore(store, backup)
    kept = Path(answer["kept"])
    assert store.read_bytes() == HEADER + b"new"
    assert kept.read_bytes() == HEADER + b"old"
    assert kept.with_name(kept.name + "-wal").read_bytes() == b"log"
    assert not (tmp_path / "harken.db-wal").exists()
    assert store.stat().st_mode & 0o077 == 0


def test_a_second_restore_keeps_both(tmp_path: Path) -> None:
    store, backup = database(tmp_path / "harken.db", b"old"), database(tmp_path / "copy.db", b"new")
    assert restore(store, backup)["kept"] != restore(store, backup)["kept"]


def test_a_store_is_restored_where_there_was_none(tmp_path: Path) -> None:
    backup = database(tmp_path / "copy.db", b"new")
    assert restore(tmp_path / "deep" / "harken.db", backup)["kept"] == ""
    assert (tmp_path / "deep" / "harken.db").exists()


def test_what_is_no_backup_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    store = database(tmp_path / "harken.db", b"old")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(Refused):
        restore(store, tmp_path / "notes.txt")
    with pytest.raises(NotFound):
        restore(store, tmp_path / "nothing")
    with pytest.raises(Refused, match="store itself"):
        restore(store, store)
    assert store.read_bytes() == HEADER + b"old"


def test_a_log_without_its_database_is_not_left_beside_the_restored_one(tmp_path: Path) -> None:
    store, backup = tmp_path / "harken.db", database(tmp_path / "copy.db", b"new")
    (tmp_path / "harken.db-wal").write_bytes(b"log")
    (tmp_path / "harken.db-shm").write_bytes(b"its index")
    answer = restore(store, backup)
    assert Path(answer["kept"]).read_bytes() == b"log"
    assert not (tmp_path / "harken.db-wal").exists()
