"""How long each kind of record is kept, as it is configured, and how many there are now."""

from __future__ import annotations

from harken.config.settings import Retention
from harken.durations import format_duration
from harken.operate.context import Context
from harken.operate.output_rows import Plain

__all__ = ["list_retention"]


async def list_retention(context: Context) -> Plain:
    """One row for each setting of `retention:`; `stored` is null where the store does not count."""
    kept = context.loaded.settings.retention if context.loaded else Retention()
    counts = await context.store.counts()
    runs = sum(number for name, number in counts.items() if name.startswith("runs_"))
    rows = [
        _row("events", "events with their verdicts", kept.events, counts.get("events", 0)),
        _row("runs", "runs that are over, with their steps", kept.runs, runs),
        _row("ticks", "reads of feeds", kept.ticks, None),
        _row("audit", "who changed what, and webhooks that were refused", kept.audit, None),
        {
            "name": "keep_last",
            "what": "events that stay for each trigger, of each outcome, however old",
            "keeps": f"the last {kept.keep_last}" if kept.keep_last else "none",
            "keep_seconds": None,
            "stored": None,
        },
    ]
    return {"items": rows, "next": None}


def _row(name: str, what: str, seconds: float, stored: int | None) -> Plain:
    return {"name": name, "what": what, "keeps": format_duration(seconds), "keep_seconds": seconds, "stored": stored}
