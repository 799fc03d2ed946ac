"""Every command in a block of a page is typed at a shell, in the order of the page, and works.

`harken` is forked, so that a command costs little; services are fakes on loopback. What a block `console` says that a
command prints is compared with what it prints.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harken.testing.fakes.slack import TOKEN
from tests.docs.blocks import ROOT, Block, blocks, pages
from tests.docs.forked_terminal import ForkedTerminal, Typed, forked_programs
from tests.docs.page_worlds import ELSEWHERE, NOT_RUN, NOT_TYPED, WORLDS, World
from tests.docs.walk import LOOKS, Said, transcript

pytestmark = [pytest.mark.process, pytest.mark.worker_group("shell-blocks"), pytest.mark.timeout(300)]

PATIENCE_SECONDS = 30
SHELLS = ("sh", "bash", "console")
RECIPES = "src/harken/recipes/"


def with_commands() -> dict[str, Path]:
    found = {str(page.relative_to(ROOT)): page for page in pages()}
    return {name: page for name, page in found.items() if any(block.language in SHELLS for block in blocks(page))}


PAGES = [name for name in with_commands() if name not in ELSEWHERE and not name.startswith(RECIPES)]

STAND_INS = {
    "systemctl": "",  # of `harken service install`; the unit is written
    "make": f'exec /usr/bin/make -n -C {ROOT} "$@" > /dev/null',
    "pass": f"echo {TOKEN}",
    "python": f'[ "$2" = bench ] || exec {sys.executable} "$@"',
    "python3": f'exec {sys.executable} "$@"',
}

FILES = {
    "models": "harken.yaml",
    "pollers": "pollers.yaml",
    "trackers": "harken.yaml",
    "environment": "tests/urgent.yaml",
}
WHOLE = re.compile(r"name: (\S+)\n.*^(trigger|steps):", re.DOTALL | re.MULTILINE)


def lines_of(text: str) -> list[str]:
    """The lines to type: those that end with a backslash go on, and so do open quotation marks."""
    found: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        is_open = bool(found) and any(found[-1].count(mark) % 2 for mark in "'\"")
        if is_open:
            found[-1] += f"\n{line}"
        elif line.strip() and not line.startswith("#"):
            found.append(line)
    return found


def file_of(text: str) -> str:
    """The file that a block of YAML is as a whole; empty for a piece of one."""
    named = WHOLE.match(text)
    found = [file for key, file in FILES.items() if text.startswith(f"{key}:\n")]
    return f"workflows/{named[1]}.yaml" if named else found[0] if found else ""


@contextmanager
def served(world: World) -> Iterator[dict[str, str]]:
    """The addresses of the fakes, by name, until the block ends."""
    addresses: dict[str, str] = {}
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for name, fake in world.fakes.items():
                addresses[name] = await stack.enter_async_context(fake().serve())
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield addresses
    finally:
        over.set()
        thread.join(60)


class Page:
    """A page that is followed in its world."""

    def __init__(self, name: str, world: World, place: Path, programs: Path, addresses: Mapping[str, str]) -> None:
        self.name, self.world, self.directory = name, world, place / "desk"
        home = place / "home"
        for directory in (self.directory, home):
            directory.mkdir()
        environ = {
            "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "NO_COLOR": "1",
            "HARKEN_KEYRING": "off",
            "no_proxy": "127.0.0.1",
            **world.environ,
        }
        self._addresses = addresses
        self.terminal = ForkedTerminal(
            self.directory,
            environ,
            answers={word: self._addressed(answer) for word, answer in world.answers.items()},
            typed={shown: self._addressed(other) for shown, other in world.typed.items()},
            learned=world.learned,
        )
        for file, text in world.files.items():
            self.writes(file, text)
        for copied, where in world.copies.items():
            shutil.copytree(ROOT / copied, self.directory / where)
        self.typed: list[Typed] = []
        self.said: list[Said] = []

    def follow(self) -> None:
        if self.world.started:
            for block in blocks(ROOT / self.name):
                self._place(block)
            self.types("harken start")
            self._send()
        for block in blocks(ROOT / self.name):
            self._place(block)
            if block.language == "console":
                for line, wanted in transcript(block.text):
                    self._compare(line, wanted)
            elif block.language in SHELLS and not block.text.startswith("#!"):
                for line in lines_of(block.text):
                    self.types(line)

    def types(self, line: str) -> str:
        """Type the line, after those that come before it; what the last of them printed."""
        if (self.name, line) in NOT_TYPED:
            return ""
        before = [one for start, lines in self.world.before.items() if line.startswith(start) for one in lines]
        self.typed += [self.terminal.types(one) for one in (*before, line)]
        return self.typed[-1].shown

    def _compare(self, line: str, wanted: str) -> None:
        """Type it, and again if it only looks, until it prints what the page has: a person takes longer to read."""
        for shown, other in self.world.typed.items():
            wanted = wanted.replace(shown, other)
        said = Said(command=line, wanted=wanted, printed=self.types(line))
        until = time.monotonic() + PATIENCE_SECONDS
        while LOOKS.match(line) and said.printed and not said.is_same and time.monotonic() < until:
            time.sleep(0.2)
            said = replace(said, printed=self.types(line))
        if wanted and said.printed:
            self.said.append(said)

    def writes(self, file: str, text: str) -> None:
        path = self.directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        for shown, other in self.world.typed.items():
            text = text.replace(shown, other)
        path.write_text(self._addressed(text), "utf-8")

    def _send(self) -> None:
        for id, events in self.world.events.items():
            for event in events:
                request = urllib.request.Request(
                    f"{self.terminal.address}/webhooks/generic/{id}",
                    json.dumps(event).encode(),
                    {"Content-Type": "application/json"},
                )
                urllib.request.urlopen(request, timeout=60).close()

    def _place(self, block: Block) -> None:
        """Write what is a whole file; a second one with its name is a part of it, to be looked at."""
        file = file_of(block.text) if block.language == "yaml" else ""
        if file and not (self.directory / file).exists():
            self.writes(file, block.text)

    def _addressed(self, text: str) -> str:
        for name, address in self._addresses.items():
            text = text.replace(f"{{{name}}}", address)
        return text


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with forked_programs(tmp_path_factory.mktemp("programs")) as found:
        for name in {*NOT_RUN, *STAND_INS}:
            (found / name).write_text(f"#!/bin/sh\n{STAND_INS.get(name, '')}\n", "utf-8")
            (found / name).chmod(0o755)
        yield found


def followed(name: str, world: World, place: Path, programs: Path) -> Page:
    with served(world) as addresses:
        page = Page(name, world, place, programs, addresses)
        try:
            page.follow()
        finally:
            page.terminal.leaves()
    return page


def wrong(page: Page) -> list[str]:
    """The lines that did not end as they shall, and the transcripts that are not what was printed."""
    codes = page.world.codes
    lines = [str(one) for one in page.typed if one.code != codes.get(one.line, 0) or "Traceback" in one.shown]
    return [*lines, *(str(said) for said in page.said if not said.is_same)]


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_the_page_work(name: str, tmp_path: Path, programs: Path) -> None:
    page = followed(name, WORLDS.get(name, World()), tmp_path, programs)
    assert page.typed
    assert wrong(page) == []


def test_the_commands_of_every_recipe_are_the_same_three_and_those_of_one_are_typed(
    tmp_path: Path, programs: Path
) -> None:
    names = [name for name in with_commands() if name.startswith(RECIPES)]
    typed = {name: "".join(block.text for block in blocks(ROOT / name) if block.language in SHELLS) for name in names}
    three = "harken init --recipe {}\nharken test\nharken start\n"
    assert typed == {name: three.format(Path(name).parent.name) for name in names}
    page = followed(f"{RECIPES}own-failures/README.md", World(environ={"SLACK_BOT_TOKEN": TOKEN}), tmp_path, programs)
    assert wrong(page) == []


def test_what_is_not_typed_here_is_on_a_page_and_has_a_reason() -> None:
    texts = {name: "".join(block.text for block in blocks(page)) for name, page in with_commands().items()}
    whole = "".join(texts.values())
    assert set(WORLDS) | set(ELSEWHERE) <= set(texts)
    assert [(page, line) for page, line in NOT_TYPED if line not in texts[page]] == []
    assert [program for program in NOT_RUN if f"{program} " not in whole] == []
    assert [test for test in ELSEWHERE.values() if not (ROOT / test).is_file()] == []
    assert all([*NOT_RUN.values(), *NOT_TYPED.values()])


def test_a_wrong_command_and_a_wrong_transcript_would_be_noticed(tmp_path: Path, programs: Path) -> None:
    with served(World()) as addresses:
        page = Page("docs/index.md", World(), tmp_path, programs, addresses)
    page.types("harken trigers list")
    page.said.append(Said(command="harken --version", wanted="harken 9.9.9\n", printed=page.types("harken --version")))
    refused, differs = wrong(page)
    assert "Did you mean triggers?" in refused
    assert "the page has:\nharken 9.9.9" in differs
