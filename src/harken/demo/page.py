"""The demo's page in the browser: its events, runs and counters, what the words mean, and what to do next."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, MutableMapping, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files
from typing import Any

from harken.demo import program
from harken.demo.legend import COUNTERS, VERDICTS, counter_words
from harken.demo.snapshot import Snapshot, about_run, describe_event
from harken.event import Recorded
from harken.runs import Run

__all__ = ["Page"]

EVENTS = 10
RUNS = 8
NOTES = 12
_GOOD = ("fired", "done")
_BAD = ("failed", "dead", "error")
_ICON = (
    "data:image/svg+xml,"
    "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Ccircle cx='8' cy='8' r='7' fill='%232f6f4f'/%3E%3C/svg%3E"
)


class Page:
    """An ASGI application that answers with the last snapshot; its script asks for a newer one every second.

    Everything is in the one answer, so the policy allows exactly this style and this script, and no other source.
    """

    def __init__(self, place: str, commands: Sequence[str], noted: str = "") -> None:
        self._place = place
        self._commands = commands
        self._noted = noted
        self._snapshot = Snapshot()
        self._style = _asset("page.css")
        self._script = _asset("page.js")
        self._policy = "; ".join(
            (
                "default-src 'none'",
                f"style-src '{_digest(self._style)}'",
                f"script-src '{_digest(self._script)}'",
                "connect-src 'self'",
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            )
        )

    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        body = self.html().encode()
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"content-security-policy", self._policy.encode()),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def html(self) -> str:
        return "".join(
            (
                '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Harken demo</title>',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f'<link rel="icon" href="{_ICON}">',
                # without scripts the browser loads the whole page again
                '<noscript><meta http-equiv="refresh" content="2"></noscript>',
                f"<style>{self._style}</style></head><body><main>",
                "<h1>Harken at work</h1>",
                f'<p class="lead">The {escape(self._place)} runs on this machine, and a real Harken watches it. '
                "Nothing leaves this machine, and no account is needed.</p>",
                '<p id="stopped" hidden>The demo has stopped. What to do next is below.</p>',
                f'<div id="live">{self._live()}</div>',
                f"{self._next()}{_words()}</main><script>{self._script}</script></body></html>",
            )
        )

    def _live(self) -> str:
        shown = self._snapshot
        return (
            f"{_counters(shown)}<h2>Events</h2>{_table(('at', 'event', 'decided'), self._event_rows(shown))}"
            f"<h2>Runs</h2>{_table(('at', 'workflow', 'about', 'ended', 'took'), self._run_rows(shown))}"
            f"{self._notes(shown)}"
        )

    def _notes(self, shown: Snapshot) -> str:
        if not self._noted:
            return ""
        rows = (f"<tr><td>{escape(note)}</td></tr>" for note in shown.notes[:NOTES])
        return f"<h2>{escape(self._noted.capitalize())}</h2>{_table(('the newest first',), rows)}"

    def _event_rows(self, shown: Snapshot) -> Iterable[str]:
        return (_event_row(event, shown) for event in shown.events[:EVENTS])

    def _run_rows(self, shown: Snapshot) -> Iterable[str]:
        return (_run_row(run, shown) for run in shown.runs[:RUNS])

    def _next(self) -> str:
        name = program()
        own = (f"{name} init my-automations", f"{name} --config my-automations start")
        return (
            "<h2>What next</h2><ol>"
            f"<li>Look around in another terminal:{_commands(self._commands)}</li>"
            f"<li>Make your own. It begins with two workflows that need no account:{_commands(own)}</li>"
            "</ol>"
        )


def _asset(name: str) -> str:
    return (files("harken.demo") / name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _commands(lines: Iterable[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _counters(shown: Snapshot) -> str:
    cards = (_card(word, number) for word, number in counter_words(shown.counters).items())
    return f"<dl class='counters'>{''.join(cards)}</dl>"


def _card(word: str, number: int) -> str:
    meaning = f"<dd class='meaning'>{escape(COUNTERS[word])}</dd>" if word in COUNTERS else ""
    return f"<div><dt>{escape(word)}</dt><dd>{number}</dd>{meaning}</div>"


def _table(heads: Sequence[str], rows: Iterable[str]) -> str:
    body = "".join(rows) or f"<tr><td colspan='{len(heads)}' class='none'>nothing yet</td></tr>"
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in heads)
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _event_row(event: Recorded, shown: Snapshot) -> str:
    verdicts = " ".join(
        _mark(f"{shown.triggers.get(v.trigger, v.trigger)} {v.outcome.replace('_', ' ')}", v.outcome, v.reason)
        for v in event.verdicts
    )
    return f"<tr><td>{_clock(event.recorded_at)}</td><td>{escape(describe_event(event))}</td><td>{verdicts}</td></tr>"


def _run_row(run: Run, shown: Snapshot) -> str:
    outcome = shown.outcomes.get(run.id, run.status)
    took = f"{(run.finished_at - run.started_at).total_seconds():.2f} s" if run.started_at and run.finished_at else ""
    return (
        f"<tr><td>{_clock(run.created_at)}</td><td>{escape(run.workflow)}</td><td>{escape(about_run(run, shown))}</td>"
        f"<td>{_mark(outcome, outcome, run.error)}</td><td>{took}</td></tr>"
    )


def _mark(text: str, outcome: str, reason: str) -> str:
    tone = "good" if outcome in _GOOD else "bad" if outcome in _BAD else "other"
    hint = f' title="{escape(reason)}"' if reason else ""
    return f'<span class="{tone}"{hint}>{escape(text)}</span>'


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone():%H:%M:%S}"


def _words() -> str:
    meanings = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in VERDICTS.items())
    return f"<h2>What the words mean</h2><dl class='words'>{meanings}</dl>"
