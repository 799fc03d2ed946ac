"""Who is called finds what to do: a runbook for each alert, and commands that exist."""

from __future__ import annotations

import re

import click
import pytest
import yaml

from harken.cli.root import root
from tests.docs.blocks import ROOT, commands, words

RULES = yaml.safe_load((ROOT / "examples" / "monitoring" / "alerts.yaml").read_text("utf-8"))
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]
PAGE = (ROOT / "docs" / "operations" / "runbooks.md").read_text("utf-8")
RUNBOOKS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert list(RUNBOOKS) == ALERTS


def test_every_runbook_says_what_it_means_what_to_type_and_when_it_is_over() -> None:
    for alert, text in RUNBOOKS.items():
        assert "**Means**:" in text and "**Over when**" in text and "`harken " in text, alert


ONE_OF = {"bulk plan": {"--where", "--ids"}, "dead retry": {"--trigger", "--all", "ID"}}
"""What these commands ask for one of, when they are called."""


def lacking(typed: list[str]) -> str:
    """What a command would refuse to be without; empty if it can be typed as it is, or is a group that is spoken of."""
    command: click.Command = root
    context, rest, names = click.Context(root, info_name="harken"), typed[1:], []
    while isinstance(command, click.Group):
        _, rest, _ = command.make_parser(context).parse_args(list(rest))
        if not rest or command.name in ("integrations", "test"):
            return ""
        name, found, rest = command.resolve_command(context, rest)
        assert found
        names.append(str(name))
        command, context = found, click.Context(found, parent=context, info_name=name, **found.context_settings)
    given, _, _ = command.make_parser(context).parse_args(list(rest))
    needed = [one for one in command.params if isinstance(one, click.Argument) and one.required]
    missing = [str(one.name) for one in needed if not isinstance(given.get(str(one.name)), str | list)]
    wanted = ONE_OF.get(" ".join(names), set())
    return " ".join([*typed, "needs", *missing, *wanted]) if missing or (wanted and not wanted & set(rest)) else ""


@pytest.mark.parametrize("page", ["index.md", "runbooks.md"])
def test_commands_of_the_handbook_can_be_typed_as_they_are(page: str) -> None:
    found = [lacking(words(command)) for _, command in commands(ROOT / "docs" / "operations" / page)]
    assert [refused for refused in found if refused] == []


def test_a_command_without_what_it_needs_is_noticed() -> None:
    typed = ["harken triggers pause", "harken dead retry", "harken bulk plan retry", "harken dead drop"]
    assert [line for line in typed if not lacking(line.split())] == []
