"""`harken recipes …`: configurations to begin from."""

from __future__ import annotations

import click

from harken.cli.invocation import Session, command
from harken.cli.output import print_json, say, table

__all__ = ["recipes_command"]


@click.group("recipes", context_settings={"help_option_names": ["-h", "--help"]})
def recipes_command() -> None:
    """See the recipes: configurations to begin from."""


@command(recipes_command, "list")
def list_command(session: Session) -> None:
    """List the recipes with what they do. `harken init --recipe NAME` writes one."""
    from harken.operate.recipes import list_recipes

    rows = list_recipes()
    if session.as_json:
        print_json(rows)
        return
    table(rows, [("recipe", "name"), ("what it does", "title")])
    say("Begin with one: harken init --recipe NAME")


@command(recipes_command, "show")
@click.argument("name")
def show_command(session: Session, name: str) -> None:
    """Print what a recipe does, with its picture, and what it needs."""
    from harken.operate.recipes import list_recipes, read_recipe

    text = read_recipe(name)
    if session.as_json:
        print_json({**next(row for row in list_recipes() if row["name"] == name), "readme": text})
    else:
        click.echo(text, nl=False)
