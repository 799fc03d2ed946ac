"""A change of a file is noticed, whatever else lies beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harken.app.file_watch import FileStamps, _watch_directory, file_stamps


def test_an_editor_s_lock_that_leads_nowhere_hides_no_change(tmp_path: Path) -> None:
    (tmp_path / ".#pollers.yaml").symlink_to("somebody@example.1234")
    (tmp_path / "pollers.yaml").write_text("pollers:\n")
    before = file_stamps(tmp_path)
    (tmp_path / "pollers.yaml").write_text("pollers: {}\n")
    assert (list(before), file_stamps(tmp_path) != before) == (["pollers.yaml"], True)


def test_a_directory_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert file_stamps(tmp_path / "gone") == {}


async def test_a_file_that_is_being_written_is_loaded_once_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emptied first, then written in two parts, as by an editor or a shell."""
    old, emptied, half, whole = ({"pollers.yaml": (time, size)} for time, size in ((1, 90), (2, 0), (3, 40), (4, 95)))
    looks = iter([old, emptied, half, whole, whole, whole])
    wanted, at = asyncio.Event(), []

    def look(_: Path) -> FileStamps:
        at.append(wanted.is_set())
        wanted.clear()
        if (found := next(looks, None)) is None:
            raise asyncio.CancelledError
        return found

    monkeypatch.setattr("harken.app.file_watch.file_stamps", look)
    for pause in ("LOOK_SECONDS", "SETTLE_SECONDS"):
        monkeypatch.setattr(f"harken.app.file_watch.{pause}", 0)
    with pytest.raises(asyncio.CancelledError):
        await _watch_directory(tmp_path, wanted, old)
    assert at == [False, False, False, False, False, True, False]
