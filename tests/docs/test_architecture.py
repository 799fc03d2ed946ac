"""The architecture page is true: its paths and names exist, its layers are enforced, a tick goes the way it says."""

from __future__ import annotations

import ast
import re
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from harken.testing import VirtualClock, virtual
from tests.ingest.process import Process, trigger

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "harken"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
QUOTED = re.compile(r"`([^`\n]+)`")
PLACE = re.compile(r"(?:(?:src|tests|docs|bench)/)?[a-z_0-9/]+(?:\.py|\.lua|\.sql|\.md|/)")
BLACK_BOXES = ("services", "kit", "http", "language", "store", "backends", "testing")
MOST_MODULES = 14


def places() -> list[tuple[str, str]]:
    """Every path in backticks, with the name behind its colon, as in `ingest/poll.py:Poller.tick`."""
    found = []
    for quoted in QUOTED.findall(re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE)):
        path, _, name = quoted.partition(":")
        if PLACE.fullmatch(path):
            found.append((path, name))
    return found


def located(path: str) -> Path | None:
    return next((root / path for root in (PACKAGE, ROOT) if (root / path).exists()), None)


def defined(body: list[ast.stmt]) -> Iterator[tuple[str, list[ast.stmt]]]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name, statement.body if isinstance(statement, ast.ClassDef) else []
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                if isinstance(target, ast.Name):
                    yield target.id, []


def has(path: Path, name: str) -> bool:
    body = ast.parse(path.read_text("utf-8")).body
    for part in name.split("."):
        known = dict(defined(body))
        if part not in known:
            return False
        body = known[part]
    return True


def test_the_page_names_many_places() -> None:
    assert len(places()) > 60
    assert sum(bool(name) for _, name in places()) > 20


@pytest.mark.parametrize(("path", "name"), sorted(set(places())))
def test_every_path_and_name_exists(path: str, name: str) -> None:
    found = located(path)
    assert found is not None, f"{path} is on the page, but not in the tree"
    assert not name or has(found, name), f"{path} has no {name}"


def test_every_package_is_on_the_page() -> None:
    named = {path for path, _ in places()}
    packages = {f"{path.name}/" for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    modules = {path.name for path in PACKAGE.glob("*.py") if path.name != "__init__.py"}
    assert (packages | modules) - named == set()


def test_the_layers_are_those_that_import_linter_enforces() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["id"] == "layers")
    (written,) = re.findall(r"## The layers.*?```text\n(.*?)```", PAGE, flags=re.DOTALL)
    enforced = [[name.strip(" ()").removeprefix("harken.") for name in layer.split("|")] for layer in layers]
    assert [line.split() for line in written.splitlines()] == enforced


def listed_modules() -> set[str]:
    (section,) = re.findall(r"these are the modules to open.*?\n(.*?)\n## ", PAGE, flags=re.DOTALL)
    return set(re.findall(r"^\d+\. `([a-z_/]+\.py)`", section, flags=re.MULTILINE))


@contextmanager
def visited() -> Iterator[set[str]]:
    """The modules of Harken whose functions are called meanwhile, but for black boxes."""
    modules: set[str] = set()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE) and path.relative_to(PACKAGE).parts[0] not in BLACK_BOXES:
            modules.add(str(path.relative_to(PACKAGE)))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield modules
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


@virtual
async def test_one_tick_visits_no_other_module_than_those_on_the_page(clock: VirtualClock, tmp_path: Path) -> None:
    process = Process(clock, tmp_path)
    await process.start(trigger(condition='event.state == "open"'))
    await clock.sleep(130)
    process.world.put("ticket-1", "open")
    with visited() as modules:
        await clock.sleep(61)
    assert await process.fired() == ["ticket-1"]
    await process.stop()

    assert "ingest/poll.py" in modules
    assert modules - listed_modules() - {"clock.py"} == set(), sorted(modules)
    assert len(listed_modules()) <= MOST_MODULES
