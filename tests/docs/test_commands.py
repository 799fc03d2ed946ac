"""Every command on a page exists, with its options. Those of README, install page and tutorial are also run."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from harken.cli.root import root
from tests.docs.blocks import ROOT, commands, pages, words

STANDS_FOR_SOMETHING = re.compile(r"…|\.\.\.|[A-Z_]+")


def refusal(typed: list[str]) -> str:
    """What is wrong with a command; empty if it exists, takes these options, and not more arguments."""
    command: click.Command = root
    context = click.Context(root, info_name="harken")
    rest = typed[1:]
    try:
        while isinstance(command, click.Group):
            if command.name == "test" and rest and rest[0] not in command.list_commands(context):
                rest = ["run", *rest]  # `harken test` alone runs the cases
            _, rest, _ = command.make_parser(context).parse_args(list(rest))
            if not rest:
                return ""
            if STANDS_FOR_SOMETHING.fullmatch(rest[0]):
                return ""
            name, found, rest = command.resolve_command(context, rest)
            if found is None:
                return f"{' '.join(typed)}: there is no {name}"
            settings = found.context_settings
            command, context = found, click.Context(found, parent=context, info_name=name, **settings)
        if "--help" not in rest:
            command.make_parser(context).parse_args(list(rest))
    except (click.UsageError, ValueError) as error:
        return f"{' '.join(typed)}: {error}"
    return ""


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_the_page_exists(page: Path) -> None:
    wrong = [f"{place}: {told}" for place, command in commands(page) if (told := refusal(words(command)))]
    assert wrong == []


def test_there_are_many_commands_and_a_wrong_one_would_be_noticed() -> None:
    assert sum(len(list(commands(page))) for page in pages()) > 400
    assert refusal(["harken", "runs", "list", "--workflow", "x"]) == ""
    assert "No such option" in refusal(["harken", "runs", "list", "--wrkflow", "x"])
    assert "There is no command" in refusal(["harken", "audits"])
