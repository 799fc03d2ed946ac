"""Names that a shell completes: of workflows in this configuration, and of recipes. Files are only glanced at."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem

__all__ = ["complete_names", "recipe_names", "workflow_names"]

_Find: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_NAME = re.compile(r"""^name:\s*["']?([^"'#\n]+?)["']?\s*(?:#.*)?$""", re.MULTILINE)
_GLANCE = 4_096
_MOST_FILES = 1_000


def complete_names(group: click.Group | None, made: click.Command) -> None:
    """Let the argument of a command that takes the name of a trigger, workflow or recipe be completed."""
    find = _FINDERS.get(group.name or "") if group is not None else None
    for parameter in made.params:
        if parameter.name == "recipe" or (find is _recipes and parameter.name == "name"):
            parameter.type = _Completed(parameter.type, _recipes)
        elif find is not None and isinstance(parameter, click.Argument) and parameter.name in ("name", "trigger"):
            parameter.type = _Completed(parameter.type, find)


class _Completed(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """A type whose values a shell completes."""

    def __init__(self, given: click.ParamType[Any], find: _Find) -> None:
        self.name = given.name
        self._given = given
        self._find = find

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._given.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return self._find(ctx, param, incomplete)


def workflow_names(directory: Path) -> list[str]:
    """The names that workflow files begin with; what cannot be read has none."""
    found = set()
    for file in sorted((directory / "workflows").rglob("*.y*ml"))[:_MOST_FILES]:
        try:
            with file.open(encoding="utf-8", errors="replace") as stream:
                name = _NAME.search(stream.read(_GLANCE))
        except OSError:
            continue
        if name:
            found.add(name[1])
    return sorted(found)


def recipe_names() -> list[str]:
    from importlib.resources import files

    return sorted(folder.name for folder in (files("harken") / "recipes").iterdir() if folder.is_dir())


def _workflows(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    directory = ctx.params.get("config_dir") or ctx.find_root().params.get("config_dir") or "."
    return _items(workflow_names(Path(directory).expanduser()), begun)


def _recipes(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    return _items(recipe_names(), begun)


def _items(names: list[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(begun)]


_FINDERS: dict[str, _Find] = {
    "triggers": _workflows,
    "workflows": _workflows,
    "recipes": _recipes,
}
