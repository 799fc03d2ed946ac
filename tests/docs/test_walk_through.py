"""A person who has the wheel and no clone follows README, its ten lines and the first tutorial, in an empty directory.

What the pages say that commands print is compared with what they print. To write it anew into the pages:

    HARKEN_REWRITE_DOCS=1 .venv/bin/python -m pytest tests/docs/test_walk_through.py
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.walk import Person, Said, Walk, normalised, steps_of, transcript, with_transcripts
from tests.docs.wheel import ROOT, build_wheel, fresh_machine
from tests.servers.ports import free_port

# both pages are followed before the first test, each command in a process of its own
pytestmark = [pytest.mark.process, pytest.mark.xdist_group("walk-through"), pytest.mark.timeout(900)]

REWRITING = bool(os.environ.get("HARKEN_REWRITE_DOCS"))
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial" / "first-workflow.md"
ENDLESS = ("harken start", "python3 -m http.server")


def ten_lines() -> str:
    """That section, without what is typed in a clone."""
    section = README.read_text("utf-8").partition("## Ten lines\n")[2].partition("\n## ")[0]
    (in_a_clone,) = [step for step in steps_of(section) if step.text.startswith("make ")]
    return section.replace(f"```sh\n{in_a_clone.text}```", "")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[dict[Path, Walk]]:
    """Both pages, one after the other. The tutorial is done in a new directory, with the same environment."""
    place = tmp_path_factory.mktemp("person")
    environ = fresh_machine(place / "machine")
    found = {}
    for page, name, text in ((README, "first", ten_lines()), (TUTORIAL, "second", TUTORIAL.read_text("utf-8"))):
        directory = place / name / "desk"
        directory.mkdir(parents=True)
        shutil.copy(wheel, directory)
        if page is TUTORIAL:
            (directory / ".venv").symlink_to(place / "first" / "desk" / ".venv")
        person = Person(directory, environ, {"8765": str(free_port())})
        found[page] = Walk(person=person, endless=ENDLESS, rewriting=REWRITING)
        try:
            found[page].follow(text)
        finally:
            person.leaves()
    yield found


def test_every_printed_command_works_as_printed_in_a_fresh_environment_made_from_the_wheel(
    walks: dict[Path, Walk],
) -> None:
    assert [failure for walk in walks.values() for failure in walk.failed] == []
    typed = [command for walk in walks.values() for command in walk.typed]
    assert {"pip install harken-*.whl", "harken start", "harken explain orders 3"} <= set(typed)


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=lambda page: page.name)
def test_the_transcripts_of_the_page_are_what_its_commands_print(walks: dict[Path, Walk], page: Path) -> None:
    walk = walks[page]
    if REWRITING:
        page.write_text(with_transcripts(page.read_text("utf-8"), walk.said), "utf-8")
    assert walk.said
    assert [str(said) for said in walk.said if not said.is_same and not REWRITING] == []


def test_what_the_wheel_installs_is_the_package_of_the_wheel_and_nothing_of_the_clone(walks: dict[Path, Walk]) -> None:
    done = walks[README].person.types("python -c 'import harken; print(harken.__file__)'")
    assert str(walks[README].person.directory / ".venv") in done.stdout, done.stdout


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
