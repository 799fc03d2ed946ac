"""The tutorial on services, done by a machine: its commands are run and its files written as the page has them."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.wheel import build_wheel, installed
from tests.servers.ports import free_port

pytestmark = [pytest.mark.process, pytest.mark.worker_group("tutorial")]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "first-service.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = [(match[1], match[2]) for match in BLOCK.finditer(PAGE)]
COMMANDS = [text for language, text in BLOCKS if language == "sh"]
BAKERY, SERVICE, TEST = [text for language, text in BLOCKS if language == "python"]
SETTINGS, WORKFLOW = [text for language, text in BLOCKS if language == "yaml"]


class Reader:
    """Does what the page says, in a directory of their own."""

    def __init__(self, home: Path, port: int, environ: Mapping[str, str]) -> None:
        self.home = home
        self._port = port
        self._environ = environ
        self.begun = ""

    def writes(self, file: str, text: str) -> None:
        path = self.home / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("8766", str(self._port)))

    def replaces(self, file: str, text: str) -> None:
        path = self.home / file
        path.write_text(with_definitions(path.read_text(), text))

    def types(self, commands: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euc", commands], cwd=self.home, env=self._environ, capture_output=True, text=True, check=False
        )

    def does(self, commands: str) -> str:
        done = self.types(commands)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def leaves_running(self, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(command, cwd=self.home, env=self._environ, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=200)

    def wait(self, text: str, commands: str) -> str:
        deadline = time.monotonic() + 300
        while text not in (said := self.types(commands).stdout) and time.monotonic() < deadline:
            time.sleep(0.2)
        return said


def with_definitions(source: str, text: str) -> str:
    """The source with each class and function of the text in the place of its own one of that name."""
    for new in ast.parse(text).body:
        assert isinstance(new, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        (old,) = [node for node in ast.parse(source).body if getattr(node, "name", "") == new.name]
        lines, given = source.splitlines(), text.splitlines()
        lines[old.lineno - 1 : old.end_lineno] = given[new.lineno - 1 : new.end_lineno]
        source = "\n".join(lines) + "\n"
    return source


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A fresh environment in which the wheel is installed, and nothing of this clone is to be found."""
    place = tmp_path_factory.mktemp("installed")
    return installed(build_wheel(place), place)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, environ: dict[str, str]) -> Reader:
    """Who has done the first step of the page. Each test writes what it needs of the service, and of its test."""
    reader = Reader(tmp_path_factory.mktemp("desk"), free_port(), environ)
    reader.begun = reader.does(COMMANDS[0])
    return reader


def test_the_tutorial_goes_as_it_says(reader: Reader) -> None:
    _, first_loaf, shop, prove, check, start, more_loaves, ask = COMMANDS
    assert "15 passed" in reader.begun
    reader.writes("bakery.py", BAKERY)
    reader.does(first_loaf)
    reader.replaces("harken-bakery/harken_bakery.py", SERVICE)
    reader.replaces("harken-bakery/tests/test_bakery.py", TEST)
    assert "15 passed" in reader.does(prove)
    reader.writes("harken.yaml", SETTINGS)
    reader.writes("workflows/fresh.yaml", WORKFLOW)
    with reader.leaves_running(shlex.split(shop)):
        said = reader.wait("would start a run", check)
        assert "No errors, no warnings." in said
        assert "of 1 item would start a run" in said
        with reader.leaves_running([*shlex.split(start), "--port", "0"]) as controller:
            assert controller.stdout is not None
            assert "ready" in controller.stdout.readline()
            reader.wait("before_start", "harken events list --json")
            reader.does(more_loaves)
            assert "which is done" in reader.wait("which is done", ask)
    runs = json.loads(reader.does("harken runs list --json"))
    assert [run["event_keys"] for run in runs] == [["3"]]


def test_the_service_that_is_broken_as_the_page_says_fails_where_it_says(reader: Reader) -> None:
    reader.replaces("harken-bakery/tests/test_bakery.py", TEST)
    assert 'more=answer["more"]' in SERVICE
    reader.replaces("harken-bakery/harken_bakery.py", SERVICE.replace('more=answer["more"]', "more=False"))
    done = reader.types("pytest harken-bakery")
    assert done.returncode == 1
    assert "test_all_pages_are_read" in done.stdout


def test_what_the_page_makes_of_the_service_is_clean(reader: Reader) -> None:
    reader.replaces("harken-bakery/harken_bakery.py", SERVICE)
    reader.replaces("harken-bakery/tests/test_bakery.py", TEST)
    reader.does("cd harken-bakery && ruff check --no-cache && ruff format --no-cache --check && mypy --strict")
