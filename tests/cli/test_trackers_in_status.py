"""`harken status`, `triggers` and `config check` with trackers, from a terminal without a controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.cli.invocation import Session
from harken.cli.root import run
from harken.testing import VirtualClock
from harken.testing.clock import run_virtual
from tests.app.test_ticket_and_run_sync import ENVIRON, PIPELINE, PUSHED, github
from tests.services.whole import running, write


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    write(tmp_path, PUSHED.format(url="http://127.0.0.1:9"), **{"fix-bug": PIPELINE.format(name="fix-bug")})
    return tmp_path


def test_status_shows_trackers_that_were_never_read(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(directory), "status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split() == ["tracker", "kind", "how", "changes", "read", "up", "to", "swept", "trouble"]
    assert lines[-1].split() == ["acme", "github", "webhooks", "-", "-", "-"]


def test_status_shows_the_mark_of_a_tracker(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work(clock: VirtualClock) -> None:
        async with github(clock) as hub:
            (directory / "harken.yaml").write_text(PUSHED.format(url=hub.url))
            async with running(directory, clock, ENVIRON):
                hub.open("fix", by="leo")
                await clock.sleep(60)

    run_virtual(work)
    capsys.readouterr()
    run(["--config", str(directory), "status"])
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("acme ")]
    assert line.count("2026-01-05") == 2


def test_triggers_of_projects_are_listed_and_shown(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(directory), "triggers", "list", "--type", "ticket"]) == 0
    assert "acme/shop  ticket" in capsys.readouterr().out
    assert run(["--config", str(directory), "config", "check"]) == 0


def test_a_finding_about_a_project_has_its_place(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (directory / "harken.yaml").read_text().replace("fix-bug", "fix-bugs")
    (directory / "harken.yaml").write_text(text)
    assert run(["--config", str(directory), "config", "check"]) == 1
    assert "harken.yaml:9:78: projects.shop.pipeline_from_label.fix: there is no workflow" in capsys.readouterr().out


def test_the_command_that_makes_labels_can_be_copied(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place: dict[str, object] = {"location": "acme/shop", "account": "robin", "access": "write", "problem": ""}
    place |= {"webhooks": None}
    place |= {"missing_labels": ["harken:done"], "tickets": [], "forecast": {"tickets": 0, "writes": 0, "hours": 0}}
    answer = {"ok": False, "locations": [place], "webhooks": None}
    monkeypatch.setattr(Session, "call", lambda session, operation, **params: answer)
    assert run(["--config", str(directory), "trackers", "test", "acme"]) == 1
    assert "Make them: harken trackers test acme --fix" in capsys.readouterr().out
