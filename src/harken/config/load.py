"""From a directory to a configuration: every file is read, every error reported, and the rest runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from harken.config.accounts import Stored
from harken.config.interpolate import Lookup
from harken.config.loaded import Loaded
from harken.config.loader import Reading
from harken.config.resolver import Surroundings
from harken.config.workflows import Checker
from harken.source import Plugin

__all__ = ["load"]


def load(
    directory: Path,
    *,
    plugins: Mapping[str, Plugin],
    check_workflow: Checker | None = None,
    environ: Mapping[str, str] | None = None,
    secrets: Callable[[str], str | None] | None = None,
    check_condition: Callable[[str], object] | None = None,
    check_template: Callable[[str], object] | None = None,
    stored: Stored | None = None,
    checker_for: Callable[[Mapping[str, str]], Checker] | None = None,
    wanted: Iterable[str] = (),
) -> Loaded:
    """Read the directory. Never raises for what is in it: a wrong item is refused by name, and its siblings run.

    `checker_for` makes the check of workflows from the kinds of the accounts, by name. `wanted` accounts are looked
    up although nothing uses them.
    """
    lookup = Lookup(directory, environ or {}, secrets)
    around = Surroundings(
        plugins=plugins,
        environ=environ or {},
        references=lookup.references,
        check_condition=check_condition or _condition,
        check_template=check_template or _template,
        stored=stored,
    )
    return Reading(directory, lookup, around).all(lambda: _checker(around, check_workflow, checker_for), wanted)


def _checker(
    around: Surroundings, checker: Checker | None, checker_for: Callable[[Mapping[str, str]], Checker] | None
) -> Checker | None:
    return checker_for(around.kinds()) if checker_for else checker


def _condition(source: str) -> object:
    from harken.language.cel.condition import compile_condition

    return compile_condition(source)


def _template(source: str) -> object:
    from harken.language.go_template.template import compile_template

    return compile_template(source)
