"""Recipes: whole configurations to begin from, each with a picture and test cases. They are installed with Harken."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from harken.errors import NotFound
from harken.operate.output_rows import Plain
from harken.suggest import suggest_fix

__all__ = ["list_recipes", "read_recipe", "write_recipe"]

_README = "README.md"
_TITLE = re.compile(r"# ([a-z0-9-]+): (.+)")
_GENERATED_KEY = re.compile(r"scheme: api_key, secret: \"\$\{(\w+)\}\"")
_IGNORED = """\
# secrets, the state of Harken, and its environment: none of them belongs into a repository
.env
harken.db*
.venv/
"""


def list_recipes() -> list[Plain]:
    """Every recipe by name: what it does, which variables it needs, and its workflows."""
    return [_row(folder) for folder in _folders()]


def read_recipe(name: str) -> str:
    """The README of a recipe, with its picture in Mermaid."""
    return (_folder(name) / _README).read_text("utf-8")


def write_recipe(name: str, into: Path) -> list[Plain]:
    """Write the files of a recipe, and a .env with the variables it needs. What is there already stays as it is."""
    folder = _folder(name)
    given = {path: file.read_text("utf-8") for path, file in _files(folder)}
    given[".gitignore"] = _IGNORED
    needs = _needs(folder)
    if needs:
        keys = set(_GENERATED_KEY.findall("".join(given.values())))
        lines = [f"{one}={secrets.token_urlsafe(24)}" if one in keys else f"# {one}=" for one in needs]
        given[".env"] = (
            "# Variables for ${NAME} in harken.yaml and the workflows. The real environment wins.\n"
            + "".join(f"{line}\n" for line in lines)
        )
    return [{"file": str(into / path), "written": _write(into / path, text)} for path, text in given.items()]


def _write(path: Path, text: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o600 if path.name == ".env" else 0o666
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return True


def _root() -> Traversable:
    return files("harken") / "recipes"


def _folders() -> Iterator[Traversable]:
    found = (folder for folder in _root().iterdir() if (folder / _README).is_file())
    yield from sorted(found, key=lambda folder: folder.name)


def _folder(name: str) -> Traversable:
    known = [folder.name for folder in _folders()]
    if name not in known:
        fix = suggest_fix(name, known) or "harken recipes list has them all"
        raise NotFound(f"there is no recipe {name}", fix=fix)
    return _root() / name


def _files(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.is_dir():
            yield from _files(entry, f"{above}{entry.name}/")
        elif entry.name.endswith((".yaml", ".md")):
            yield f"{above}{entry.name}", entry


def _row(folder: Traversable) -> Plain:
    title = _TITLE.match((folder / _README).read_text("utf-8"))
    workflows = sorted(file.name.removesuffix(".yaml") for file in (folder / "workflows").iterdir())
    return {
        "name": folder.name,
        "title": title[2] if title else "",
        "needs": _needs(folder),
        "workflows": workflows,
    }


def _needs(folder: Traversable) -> list[str]:
    """The variables that its test cases set, which are those that it needs."""
    from harken.config.findings import Report
    from harken.config.yaml.nodes import to_plain
    from harken.config.yaml.parser import parse

    names: dict[str, None] = {}
    for file in (folder / "tests").iterdir():
        tree = parse(file.read_bytes(), file.name, Report())
        given = to_plain(tree).get("environment", {}) if tree is not None else {}
        names.update(dict.fromkeys(given))
    return list(names)
