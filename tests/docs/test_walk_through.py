"""A person who has the wheel and no clone follows README, the install page and the tutorial, in empty directories.

From the install line to the demo, a first workflow and the UI everything is typed as it is printed.

What the pages say that commands print is compared with what they print. To write it anew into the pages:

    HARKEN_REWRITE_DOCS=1 .venv/bin/python -m pytest tests/docs/test_walk_through.py
"""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.stand_ins import on_call
from tests.docs.walk import Person, Said, Walk, normalised, steps_of, transcript, with_transcripts
from tests.docs.wheel import ROOT, build_wheel, fresh_machine
from tests.servers.ports import free_port

# all pages are followed before the first test, each command in a process of its own
pytestmark = [pytest.mark.process, pytest.mark.worker_group("walk-through"), pytest.mark.timeout(900)]

REWRITING = bool(os.environ.get("HARKEN_REWRITE_DOCS"))
README, INSTALL = ROOT / "README.md", ROOT / "docs" / "how-to" / "install.md"
TUTORIAL = ROOT / "docs" / "tutorial" / "first-workflow.md"
ENDLESS = ("harken start", "harken demo", "python3 -m http.server")
SHOWN_SECONDS = 3
# what takes half a minute with a real account takes a second here
QUICK = {"interval: 30s": "interval: 1s"}


def section(page: Path, heading: str) -> str:
    text = page.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    assert text, f"{page.name} has no section {heading}"
    return text


class People:
    """Each follows a page in a new directory. Who does not install has the environment that the first one made."""

    def __init__(self, place: Path, wheel: Path) -> None:
        self.place = place
        # the index from which they install has nothing but the wheel
        self.environ = {**fresh_machine(place / "machine"), "PIP_FIND_LINKS": str(wheel.parent)}
        self.venv = place / "first" / "desk" / ".venv"

    def person(self, name: str, environ: Mapping[str, str] | None = None, *, installs: bool = False) -> Person:
        directory = self.place / name / "desk"
        directory.mkdir(parents=True)
        if not installs:
            (directory / ".venv").symlink_to(self.venv)
        return Person(directory, {**self.environ, **(environ or {})}, {"8765": str(free_port()), **QUICK})


@dataclass(kw_only=True)
class Followed:
    """Walks by page, the summary of the demo, what is in the channel, and the UI as its address answers."""

    walks: dict[Path, list[Walk]] = field(default_factory=dict)
    demo: str = ""
    messages: list[str] = field(default_factory=list)
    ui: str = ""

    @property
    def all(self) -> list[Walk]:
        return [walk for walks in self.walks.values() for walk in walks]


def follow_readme(people: People, followed: Followed) -> Iterator[Walk]:
    head = README.read_text("utf-8").partition("\n## ")[0]
    first = Walk(person=people.person("first", installs=True), endless=ENDLESS, rewriting=REWRITING)
    yield first
    # of the prose around it only the block: what else it names needs pipx or uv
    first.follow("".join(f"```{step.language}\n{step.text}```\n" for step in steps_of(head) if step.language))
    first.person.waits_for("harken demo", " fired")
    time.sleep(SHOWN_SECONDS)
    first.person.kills("harken demo", signal.SIGINT)
    followed.demo = first.person.printed("harken demo")
    with on_call() as stage:
        oncall = Walk(person=people.person("oncall", stage.environ), endless=ENDLESS, rewriting=REWRITING)
        yield oncall
        oncall.person.writes("harken.yaml", stage.settings)
        before, _, after = section(README, "An incident becomes a message").partition("Two incidents later:")
        oncall.follow(before)
        stage.happen()
        oncall.follow(after.rpartition("```\n")[0] + "```\n")
        followed.messages = stage.said
        oncall.person.leaves()
    ten_lines = Walk(person=people.person("second"), endless=ENDLESS, rewriting=REWRITING)
    yield ten_lines
    ten_lines.follow(section(README, "Ten lines"))


def follow_install(people: People, followed: Followed) -> Iterator[Walk]:
    walk = Walk(person=people.person("third", installs=True), endless=ENDLESS, rewriting=REWRITING)
    yield walk
    walk.follow(section(INSTALL, "First steps"))
    with urllib.request.urlopen(walk.person.address("harken start") + "/", timeout=60) as answer:
        followed.ui = answer.read().decode()


def follow_tutorial(people: People, followed: Followed) -> Iterator[Walk]:
    walk = Walk(person=people.person("fourth"), endless=ENDLESS, rewriting=REWRITING)
    yield walk
    walk.follow(TUTORIAL.read_text("utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Followed]:
    """All pages, one after the other."""
    found = Followed()
    people = People(tmp_path_factory.mktemp("person"), wheel)
    for page, follow in ((README, follow_readme), (INSTALL, follow_install), (TUTORIAL, follow_tutorial)):
        found.walks[page] = []
        try:
            for walk in follow(people, found):
                found.walks[page].append(walk)
        finally:
            for walk in found.walks[page]:
                walk.person.leaves()
    yield found


def test_every_printed_command_works_as_printed_in_a_fresh_environment_made_from_the_wheel(followed: Followed) -> None:
    assert [failure for walk in followed.all for failure in walk.failed] == []
    typed = [command for walk in followed.all for command in walk.typed]
    wanted = {"pip install harken", "harken demo", "harken init", "harken test", "harken start"}
    assert wanted | {"harken explain orders 3", "harken explain incidents PINC2"} <= set(typed)


def test_the_demo_that_is_stopped_by_ctrl_c_tells_that_nothing_was_lost(followed: Followed) -> None:
    assert "Nothing was lost, doubled or made up." in followed.demo


def test_the_incident_of_the_readme_is_told_once_and_the_other_one_not(followed: Followed) -> None:
    told = section(README, "An incident becomes a message")
    assert followed.messages == ["Checkout: answers 502"]
    assert f"`#oncall` has one message, *{followed.messages[0]}*" in told


def test_the_ui_is_at_the_address_that_the_start_prints(followed: Followed) -> None:
    assert "<title>Harken" in followed.ui


@pytest.mark.parametrize("page", [README, INSTALL, TUTORIAL], ids=lambda page: page.name)
def test_the_transcripts_of_the_page_are_what_its_commands_print(followed: Followed, page: Path) -> None:
    said = [one for walk in followed.walks[page] for one in walk.said]
    if REWRITING:
        page.write_text(with_transcripts(page.read_text("utf-8"), said), "utf-8")
    assert said
    assert [str(one) for one in said if not one.is_same and not REWRITING] == []


def test_what_the_wheel_installs_is_the_package_of_the_wheel_and_nothing_of_the_clone(followed: Followed) -> None:
    person = followed.walks[README][0].person
    done = person.types("python -c 'import harken; print(harken.__file__)'")
    assert str(person.directory / ".venv") in done.stdout, done.stdout


class TestTranscripts:
    PAGE = "Type:\n\n```console\n$ harken runs list\nid            outcome\ne29606091772  done\n```\n"

    def said(self, printed: str) -> Said:
        ((command, wanted),) = transcript(steps_of(self.PAGE)[0].text)
        return Said(command=command, wanted=wanted, printed=printed)

    def test_a_page_with_another_output_is_written_anew(self) -> None:
        said = self.said("id            result\ne29606091773  done\n")
        assert with_transcripts(self.PAGE, [said]) == self.PAGE.replace(said.wanted, said.printed)

    def test_a_page_in_which_only_ids_times_and_widths_differ_stays_as_it_is(self) -> None:
        said = self.said("id             outcome\n0123456789ab   done\nba9876543210   done\n")
        assert with_transcripts(self.PAGE, [said]) == self.PAGE

    def test_what_differs_each_time_is_not_compared(self) -> None:
        one = "done  hello  2026-11-16 01:58:00 UTC  2026-11-16T01:58:00+00:00  12 ms  http://127.0.0.1:9091"
        other = "done   hello   2027-01-01 00:00:00 UTC   2027-01-01T00:00:00Z   0.4 s   http://127.0.0.1:40001"
        assert normalised(one) == normalised(other)
        assert normalised(one) != normalised(other.replace("done", "dead"))
