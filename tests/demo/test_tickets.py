"""`harken demo tickets` as a process: the whole way of a ticket, without an account."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from random import Random

import pytest

from harken.demo.scenario import scenario_of
from harken.demo.ticket_progress_lines import first_words
from harken.errors import Misconfigured
from harken.operate.load_and_check_configuration import load_directory
from harken.testing import HandClock
from tests.demo.test_demo import Terminal, rows_below

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "harken.cli", "demo", "tickets", "--port", "0"]
ENVIRON = {"DEMO_URL": "http://127.0.0.1:1", "GITHUB_TOKEN": "demo", "GITHUB_WEBHOOK_SECRET": "secret-of-16-letters"}
# a busy machine must not keep the label of the last ticket on until the play is over
SECONDS = "30"


@pytest.fixture(scope="module")
def finished() -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--seconds", SECONDS]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def about(finished: subprocess.CompletedProcess[str], number: int) -> list[str]:
    """What was said about a ticket, in order, without the times."""
    found = (re.fullmatch(rf"\d\d:\d\d:\d\d #{number} (.*)", line) for line in finished.stdout.splitlines())
    return [line.group(1) for line in found if line]


@pytest.mark.process
@pytest.mark.worker_group("demo")
class TestToItsEnd:
    def test_nothing_is_lost_doubled_or_made_up(self, finished):
        assert (finished.returncode, finished.stderr) == (0, ""), finished.stdout
        counted = dict(re.findall(r"^  (lost|duplicate|unexpected|runs|deliveries) +(\d+) ", finished.stdout, re.M))
        assert counted == {"runs": "1", "lost": "0", "duplicate": "0", "unexpected": "0", "deliveries": "1"}

    def test_a_labelled_ticket_shows_its_run_and_ends_with_a_pull_request(self, finished):
        first, *said = about(finished, 1)
        assert first.endswith("leo, who may write, labels it with bug")
        in_progress = said.index("shows the label harken:in-progress")
        works = [said.index(f"has an agent at work in its worktree: {step}") for step in ("reading", "writing")]
        done = said.index("shows the label harken:done")
        assert max(in_progress, *works) < done
        assert said[-1] == "has a comment: @leo a pull request is ready: https://github.com/acme/shop/pull/4"
        assert about(finished, 4) == ["is a new pull request: harken/1 into main"]

    def test_what_a_stranger_labelled_is_not_started_and_the_ticket_says_why(self, finished):
        said = about(finished, 2)
        assert "eve, who may only read" in said[0]
        assert said[-1].startswith("has a comment: Cancelled")
        assert "Reason: an issue form put the label on for eve. To start it, somebody with write access" in said[-1]
        assert not [line for line in said if "agent" in line or "done" in line]

    def test_a_label_that_is_taken_off_cancels_the_run(self, finished):
        said = about(finished, 3)
        off = said.index("leo takes the label bug off while its agent works")
        assert "has an agent at work in its worktree: reading" in said[:off]
        assert "does not show harken:in-progress any more" in said[off:]
        assert said[-1].startswith("has a comment: Cancelled")
        assert not [line for line in said if "harken:done" in line]

    def test_it_ends_with_the_next_step(self, finished):
        lines = finished.stdout.splitlines()
        summary = lines[lines.index("demo summary") :]
        assert any("docs/how-to/tickets.md" in line for line in summary)
        assert max(map(len, summary)) <= 80
        assert lines[-2].endswith(" init my-automations")


@pytest.mark.process
@pytest.mark.worker_group("demo")
def test_in_80x24_events_runs_and_tickets_are_visible_and_there_is_a_page():
    with Terminal(COMMAND) as terminal:
        display = terminal.wait_until(lambda lines: any("shows the label harken:in-progress" in line for line in lines))
        page = urllib.request.urlopen(re.findall(r"http://127\.0\.0\.1:\d+", display[0])[0], timeout=200)
        body = page.read().decode()
        terminal.process.send_signal(signal.SIGINT)
        end = terminal.rest()

    assert rows_below(display, "events, the newest first", "runs, the newest first")
    assert rows_below(display, "runs, the newest first", "on the tickets, the newest first")
    assert rows_below(display, "on the tickets, the newest first", "In another terminal:")
    assert any("tickets list" in line for line in display)
    assert "<title>Harken</title>" in body
    assert "demo summary" in end


def test_the_demo_changes_nothing_in_the_example_but_addresses_and_pace(tmp_path: Path):
    scenario_of("tickets", HandClock(), Random(1)).prepare(tmp_path)
    example, changed = ROOT / "examples" / "tickets", []
    for shipped in (example / "harken.yaml", *sorted((example / "workflows").glob("*.yaml"))):
        before = set(shipped.read_text("utf-8").splitlines())
        after = (tmp_path / shipped.relative_to(example)).read_text("utf-8").splitlines()
        changed += [line.strip() for line in after if line not in before]

    assert example.resolve() == ROOT / "src" / "harken" / "demo" / "examples" / "tickets"
    assert [line.split(":")[0] for line in changed] == [
        "base_url",
        "allow_private_networks",
        "polling",
        "source",
        "command",
        "resume",
    ]
    assert [str(finding) for finding in load_directory(tmp_path, ENVIRON).findings] == []


def test_without_git_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Misconfigured, match="needs git"):
        scenario_of("tickets", HandClock(), Random(1)).prepare(tmp_path)


def test_the_first_words_of_a_comment_are_what_a_person_reads_first():
    body = "**Cancelled** · pipeline `fix-bug`  \nAsked for by `eve`  \nReason: `no`\n\n`harken-receipt v1`"

    assert first_words(body) == "Cancelled · pipeline fix-bug. Reason: no"
