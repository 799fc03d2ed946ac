"""A command that must wait for a service says so, waits, and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.api.errors import problem_of
from harken.cli.invocation import Session
from harken.cli.root import run
from harken.client import _error
from harken.errors import Deferred, Garbled, HarkenError, NeedsAttention, NoConnection, RetryLater


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr("harken.cli.retry_after.time.sleep", waited.append)
    return waited


def answers(monkeypatch: pytest.MonkeyPatch, *replies: Any) -> None:
    """Let the controller answer so, one after the other."""
    given = iter(replies)

    def call(session: Session, operation: str, **params: Any) -> Any:
        reply = next(given)
        if isinstance(reply, HarkenError):
            raise reply
        return reply

    monkeypatch.setattr(Session, "call", call)


def test_a_command_says_how_long_it_waits_and_then_goes_on(
    waits: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    busy = Deferred("the limit of writes is used up", after=41.2)
    answers(monkeypatch, busy, {"id": "r1", "status": "ready"})
    assert run(["--config", str(tmp_path), "tickets", "claim", "SHOP-7", "--json"]) == 0
    assert waits == [41.2]
    printed = capsys.readouterr()
    assert json.loads(printed.out)["id"] == "r1"
    assert "the limit of writes is used up. It goes on in 42 s" in printed.err


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Deferred("used up", after=3_000.0), "Try again in 50 min"),
        (RetryLater("the tracker does not answer"), "the tracker does not answer"),
    ],
)
def test_a_wait_that_is_long_or_unknown_ends_the_command(
    error: HarkenError,
    told: str,
    waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    answers(monkeypatch, error)
    assert run(["--config", str(tmp_path), "tickets", "retry", "SHOP-7"]) == 1
    assert waits == []
    assert told in capsys.readouterr().err


def adopted(*finished: str, waits: float | None = None) -> dict[str, Any]:
    reason = "" if waits is None else "used up"
    return {"finished": finished, "interrupted": [], "foreign": ["z"], "waits": waits, "reason": reason}


def test_an_adoption_goes_on_until_all_tickets_are_adopted(
    waits: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answers(monkeypatch, adopted("a", "b", waits=60.0), adopted(waits=5.0), adopted("c"))
    assert run(["--config", str(tmp_path), "tickets", "adopt", "acme"]) == 0
    assert waits == [60.0, 5.0]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("are not run again: a, b, c")
    assert lines[2].endswith("are left alone: z")


def test_an_adoption_that_has_to_wait_long_says_what_is_left_to_do(
    waits: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answers(monkeypatch, adopted("a", waits=3_000.0))
    assert run(["--config", str(tmp_path), "tickets", "adopt", "acme"]) == 1
    assert "in 50 min: harken tickets adopt acme" in capsys.readouterr().out
    assert waits == []


@pytest.mark.parametrize("after", [12.5, None])
def test_the_wait_comes_through_the_api(after: float | None) -> None:
    sent = problem_of(Deferred("used up", after=after))
    received = _error(sent.status_code, bytes(sent.body))
    assert isinstance(received, Deferred)
    assert (received.message, received.after) == ("used up", after)
    assert ("wait_seconds" in msgspec.json.decode(sent.body)) is (after is not None)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (RetryLater("busy"), RetryLater),
        (NoConnection("busy", host="api.example", cause="no_route"), RetryLater),
        (NeedsAttention("busy"), NeedsAttention),
        (Garbled("busy"), NeedsAttention),
    ],
)
def test_an_error_comes_through_the_api_as_what_its_code_says(raised: HarkenError, kind: type[HarkenError]) -> None:
    sent = problem_of(raised)
    received = _error(sent.status_code, bytes(sent.body))
    assert (type(received), received.message) == (kind, "busy")
