"""`harken new service`: write a package with one service file and one test, both working, to start from."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template

from harken.errors import Refused
from harken.operate.rows import Plain

__all__ = ["new_service"]

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST = 30


def new_service(name: str, directory: Path | None = None) -> Plain:
    """Write the package and return what was written. Raise Refused, and write nothing, if its name is taken."""
    kind = _kind(name)
    target = directory or Path(f"harken-{kind.replace('_', '-')}")
    _check_empty(target)
    texts = _render(kind)
    for file, text in texts.items():
        path = target / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    return {"kind": kind, "directory": str(target), "files": [str(target / file) for file in texts]}


def _kind(name: str) -> str:
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        fix = f"Use at most {_LONGEST} lower-case letters and digits, with - or _ between words, such as my-weather"
        raise Refused(f"{name!r} cannot be the name of a service", fix=fix)
    kind = name.replace("-", "_")
    if _is_taken(kind):
        raise Refused(f"a service called {kind} is installed already", fix="Choose another name")
    return kind


def _is_taken(kind: str) -> bool:
    from harken.services import registry

    return kind in registry() or kind in registry().broken


def _check_empty(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise Refused(f"{target} is there already", fix="Name another directory: harken new service NAME DIRECTORY")


def _render(kind: str) -> dict[str, str]:
    """Return the text of each file by its path."""
    words = {"kind": kind, "module": f"harken_{kind}", "package": f"harken-{kind.replace('_', '-')}"}
    templates = files("harken.operate") / "scaffolds" / "service"
    template_of = {
        "pyproject.toml": "pyproject.toml.txt",
        f"{words['module']}.py": "service.py.txt",
        "tests/conftest.py": "conftest.py.txt",
        f"tests/test_{kind}.py": "test_service.py.txt",
    }
    return {
        file: Template((templates / template).read_text("utf-8")).substitute(words)
        for file, template in template_of.items()
    }
