"""A change of a file is noticed, whatever else lies beside it."""

from __future__ import annotations

from pathlib import Path

from harken.app.file_watch import file_stamps


def test_an_editor_s_lock_that_leads_nowhere_hides_no_change(tmp_path: Path) -> None:
    (tmp_path / ".#pollers.yaml").symlink_to("somebody@example.1234")
    (tmp_path / "pollers.yaml").write_text("pollers:\n")
    before = file_stamps(tmp_path)
    (tmp_path / "pollers.yaml").write_text("pollers: {}\n")
    assert (list(before), file_stamps(tmp_path) != before) == (["pollers.yaml"], True)


def test_a_directory_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert file_stamps(tmp_path / "gone") == {}
