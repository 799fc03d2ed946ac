"""Groups whose commands are imported when they are used; their short help stands in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """`sections` maps a heading to its commands: name → (module, short help). A module's command has the name
    of the command, with `_command` after it."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._lazy = {name: entry for commands in sections.values() for name, entry in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        found = getattr(import_module(self._lazy[cmd_name][0]), f"{cmd_name}_command")
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._lazy and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]}.{_nearest(args[0], list(self._lazy))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()], col_max=14)


def _nearest(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""
