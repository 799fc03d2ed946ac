"""The configuration that docs/how-to/tickets.md shows loads, and the commands that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from harken.cli.root import root
from tests.docs.test_examples import BLOCK, ROOT, complaints, loaded

PAGE = (ROOT / "docs" / "how-to" / "tickets.md").read_text("utf-8")
BLOCKS = BLOCK.findall(PAGE)
MAIN = [block for block in BLOCKS if block.startswith("trackers:")]
[PIPELINE] = [block for block in BLOCKS if block.startswith("name:")]
PROJECT = """
projects:
  shop: {tracker: hub, resolution: {repo: acme/shop}, pipeline_from_label: {triage: first-look}}
"""


@pytest.mark.parametrize("block", MAIN, ids=range(len(MAIN)))
def test_what_it_shows_loads_without_a_complaint(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(loaded.__globals__["ENVIRON"], "GITHUB_WEBHOOK_SECRET", "not-a-secret-at-all")
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "first-look.yaml").write_text(PIPELINE, "utf-8")
    (tmp_path / "harken.yaml").write_text(block if "projects:" in block else block + PROJECT, "utf-8")

    configuration = loaded(tmp_path)

    assert complaints(configuration) == []
    assert [trigger.name for trigger in configuration.triggers] == ["hub/shop"]


def commands() -> set[tuple[str, ...]]:
    """The words of each command on the page, up to the first that is an argument."""
    found = re.findall(r"(?:`|^\$ |^)harken ((?:[a-z]+(?: |`|$))+)", PAGE, re.MULTILINE)
    return {tuple(text.strip("` ").split()) for text in found}


@pytest.mark.parametrize("words", sorted(commands()), ids=" ".join)
def test_the_commands_exist(words: tuple[str, ...]):
    command: click.Command = root
    for word in words:
        if not isinstance(command, click.Group):
            # an argument
            return
        assert word in command.list_commands(click.Context(command)), words
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    assert not isinstance(command, click.Group)
