"""What strangers write into tickets does nothing to the terminal of whoever lists them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from harken.cli.events import COLUMNS as EVENTS
from harken.cli.output import Column, fields, print_json, say, table
from harken.cli.run_summary_line import run_line
from harken.cli.tickets import RUNS, TICKETS, VERDICTS
from harken.cli.triggers import BANKED

HOSTILE = [
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31mred",
    "a\r\nharken: all is well",
    "\u202egnp.exe\u2066",
    "[bold red]markup[/] [link=https://evil.example]x[/link]",
    "{{.run.id}} ${x} $(touch x) `touch x`",
    "-rf --force",
    "\x00null",
    "x" * 1_000_000,
]


@pytest.mark.parametrize("tty", [True, False])
@pytest.mark.parametrize("text", HOSTILE)
def test_no_field_of_a_ticket_acts_in_a_table(
    text: str, tty: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty)
    monkeypatch.setenv("TERM", "dumb")
    row: dict[str, Any] = dict.fromkeys(
        ["ticket", "title", "project", "pipeline", "status", "shown", "error", "standing", "reason", "outcome"], text
    )
    row |= {"run": "r1", "since": None, "trusted": True, "id": "r1", "workflow": text, "created_at": None}
    row |= {"hold": text, "waiting_for": text}
    for columns in (TICKETS, RUNS, VERDICTS):
        table([row], columns)
    assert_harmless(capsys.readouterr().out)


@pytest.mark.parametrize("columns", [EVENTS, BANKED], ids=["events", "bank"])
def test_a_row_is_not_as_wide_as_what_strangers_write(
    columns: Sequence[Column], capsys: pytest.CaptureFixture[str]
) -> None:
    ours: dict[str, Any] = {"id": 1, "recorded_at": None, "feed": "shop", "type": "ticket", "verdicts": []}
    table([{**ours, "key": "k" * 600, "subject": "", "title": "t" * 600}], columns)
    heading, row = capsys.readouterr().out.splitlines()
    assert "k" * 159 + "…  " + "t" * 79 + "…" in row
    assert len(heading) < 300


def test_an_address_as_key_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    address = "https://status.example/incidents/" + "a" * 100
    table([{"key": address}], [("key", "key")])
    assert address in capsys.readouterr().out


def test_a_line_of_a_run_is_not_as_long_as_what_strangers_write() -> None:
    run = {"created_at": "2026-03-01T09:00:00Z", "trigger": "shop", "event_keys": ["k" * 600], "outcome": "done"}
    line = run_line({**run, "title": "t" * 600, "error": "", "seconds": 1})
    assert "k" * 159 + '… "' + "t" * 79 + '…"  done' in line


@pytest.mark.parametrize("text", HOSTILE)
def test_no_field_of_a_ticket_acts_alone(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    session: Any = SimpleNamespace(as_json=False)
    fields(session, {"title": text, "labels": [text, text], "memory": {"status": [{"label": text}]}})
    say(f"{text} is released")
    assert_harmless(capsys.readouterr().out.replace("x" * 1_000, ""))


@pytest.mark.parametrize("text", HOSTILE)
def test_json_is_the_whole_text_and_moves_no_cursor(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"title": text})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"title": text}
    assert [char for char in printed if char != "\n" and not char.isprintable()] == []


def assert_harmless(printed: str) -> None:
    assert [char for char in printed if char != "\n" and not char.isprintable()] == []
    assert "\nharken: all is well" not in printed
    assert len(printed) < 20_000
