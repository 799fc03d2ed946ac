"""The demo's words, explained wherever they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from harken.runs import OPEN

__all__ = ["COUNTERS", "SUMMARY", "VERDICTS", "counter_words"]

COUNTERS: Mapping[str, str] = {
    "late": "shown by the service after newer events; it still runs, once",
    "rate limited": "answered 429 (too many requests); Harken waits, then reads again",
}
VERDICTS: Mapping[str, str] = {
    "fired": "a run began",
    "filtered": "condition not met",
    "gathered": "waits for a digest",
    "duplicate": "known already",
    "before start": "happened before the trigger was there",
}
SUMMARY: Mapping[str, str] = {
    "events_at_source": "what happened at the simulated service",
    "recorded": "of these, what Harken has in its store",
    "runs": "runs that ended well",
    "lost": "events without a finished run",
    "duplicate": "events with two runs, or two messages",
    "unexpected": "runs that should not have been",
    "rate_limited": "reads that were answered 429, too many requests",
    "late": "events that the service showed after newer ones",
    "deliveries": "messages that arrived",
    "dead_letters": "messages that nobody can read, kept with the reason",
}


def counter_words(counters: Mapping[str, int]) -> dict[str, int]:
    """The numbers that the demo shows all the time, by what people call them."""
    failed = counters.get("runs_failed", 0) + counters.get("runs_dead", 0)
    refused = counters.get("refused_events", 0)
    return {
        "events": counters.get("events", 0),
        "runs": counters.get("runs_done", 0),
        "under way": sum(counters.get(f"runs_{state}", 0) for state in OPEN),
        **({"failed": failed} if failed else {}),
        **({"dead letters": refused} if refused else {}),
        "late": counters.get("late", 0),
        "rate limited": counters.get("rate limited", 0),
    }
