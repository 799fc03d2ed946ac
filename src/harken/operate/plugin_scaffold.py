"""`harken new service`, `harken new plugin`: write a package with a service and a test that work, to begin from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from harken.errors import Refused
from harken.operate.output_rows import Plain

__all__ = ["new_plugin", "new_service"]

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST = 30


_SERVICE = {
    "pyproject.toml": "service/pyproject.toml.txt",
    "{module}.py": "service/service.py.txt",
    "tests/conftest.py": "service/conftest.py.txt",
    "tests/test_{kind}.py": "service/test_service.py.txt",
}
_PLUGIN = {
    **_SERVICE,
    "README.md": "plugin/README.md.txt",
    "CHANGELOG.md": "plugin/CHANGELOG.md.txt",
    ".gitignore": "plugin/gitignore.txt",
    ".github/workflows/test.yaml": "plugin/workflow.yaml.txt",
}


def new_service(name: str, directory: Path | None = None) -> Plain:
    """Write the package and return what was written. Raise Refused, and write nothing, if its name is taken."""
    return _write(name, directory, _SERVICE)


def new_plugin(name: str, directory: Path | None = None) -> Plain:
    """The same as a repository to publish: with a README, a changelog and continuous integration."""
    return _write(name, directory, _PLUGIN)


def _write(name: str, directory: Path | None, wanted: Mapping[str, str]) -> Plain:
    kind = _kind(name)
    target = directory or Path(f"harken-{kind.replace('_', '-')}")
    _check_empty(target)
    texts = _render(kind, wanted)
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
        raise Refused(f"{target} is there already", fix="Name another directory, after the name")


def _render(kind: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each file by its path."""
    words = {"kind": kind, "module": f"harken_{kind}", "package": f"harken-{kind.replace('_', '-')}"}
    templates = files("harken.operate") / "scaffolds"
    return {
        file.format(**words): Template(templates.joinpath(*template.split("/")).read_text("utf-8")).substitute(words)
        for file, template in wanted.items()
    }
