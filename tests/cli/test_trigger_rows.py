"""`harken triggers create|edit|delete|export` against a running controller."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Desk

FILE = """\
name: morning
trigger:
  schedule: {every: 24h}
  overlap: skip
steps:
  - {id: say, action: transform, set: {text: hello}}
"""


async def test_a_file_becomes_a_row_which_is_changed_printed_and_removed(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "morning.yaml"
    file.write_text(FILE)
    code, out, err = await desk.types("triggers", "create", str(file))
    assert (code, err) == (0, "")
    assert out.startswith("morning is made (")
    _, out, _ = await desk.types("triggers", "edit", "morning", "--condition", "true", "--disable")
    assert "morning is changed, and not enabled" in out
    _, exported, _ = await desk.types("triggers", "export", "morning")
    assert "overlap: skip" in exported
    assert 'condition: "true"' in exported
    assert (await desk.json("triggers", "delete", "morning", "--yes"))["deleted"] is True
    code, _, err = await desk.types("triggers", "export", "morning")
    assert code != 0


async def test_what_is_wrong_is_said_with_what_to_do(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "morning.yaml"
    file.write_text(FILE.replace("24h", "24x"))
    code, _, err = await desk.types("triggers", "create", str(file))
    assert code != 0
    assert "trigger.schedule" in err
    code, _, err = await desk.types("triggers", "edit", "oncall", "--disable")
    assert code != 0
    assert "is defined in" in err
    code, _, err = await desk.types("triggers", "edit", "oncall")
    assert (code, "--condition" in err) == (2, True)
