"""Operations on the whole installation: status, reload, diff, check and backup."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from harken import __version__
from harken.errors import Refused
from harken.feed import FeedState
from harken.operate.context import Context
from harken.operate.fleet import fleet
from harken.operate.load_and_check_configuration import config_findings, finding_rows, site_of
from harken.operate.output_rows import Plain, plain
from harken.operate.tracker_webhook_health import webhook_health
from harken.operate.trigger_status import offline_since
from harken.operate.triggers import list_triggers
from harken.operate.unreadable_tracker_locations import cursor_of, trouble_of
from harken.tickets import feed_name
from harken.tickets.webhook_loss import Deliveries, stored_deliveries

__all__ = ["backup", "check_config", "check_store", "diff", "fixes_of", "reload", "status", "tracker_marks"]


SHOWN = ("name", "type", "status", "reason", "advice", "needs_person", "held", "dead", "last_read_at")
"""What is told of a trigger that needs attention."""


def fixes_of(row: Plain) -> list[str]:
    """The operations that may mend a trigger as it is listed, the best first; pages offer them as buttons."""
    found = []
    if row["status"] == "paused" and (row["paused"] or row["needs_person"]):
        found.append("triggers.resume")
    if row["dead"]:
        found.append("dead.retry_all")
    if row["held"] and not row["paused"]:
        found.append("triggers.release")
    if row["type"] == "poll" and row["status"] in ("stale", "degraded") and not found:
        found.append("triggers.run")
    return found


async def status(context: Context) -> Plain:
    """Whether a controller runs, totals, how far trackers were read, and what needs a person."""
    running = dict(context.engine.status()) if context.engine else {}
    triggers = (await list_triggers(context))["items"]
    found = list(finding_rows(context.loaded))
    attention = [
        {**{name: row[name] for name in SHOWN}, "fixes": fixes_of(row)}
        for row in sorted(triggers, key=lambda row: not row["needs_person"])
        if row["status"] not in ("healthy", "new", "disabled")
    ]
    errors = sum(row["severity"] == "error" for row in found)
    feeds = await context.store.feeds()
    return {
        "running": bool(running),
        "version": __version__,
        "config": str(site_of(context.loaded).directory),
        "store_trouble": context.store.trouble,
        "offline_since": plain(offline_since(feeds)),
        "triggers": dict(Counter(row["status"] for row in triggers)),
        "counts": dict(await context.store.counts()),
        "config_errors": errors,
        "trackers": tracker_marks(context, feeds, await stored_deliveries(context.store)),
        "attention": attention,
        "needs_person": bool(context.store.trouble or errors or any(row["needs_person"] for row in attention)),
        "controller": plain(running),
        "fleet": await fleet(context.store, context.timings.alive),
    }


def tracker_marks(context: Context, feeds: Sequence[FeedState], counted: Mapping[str, Deliveries]) -> list[Plain]:
    """How far each tracker was read: `mark` is up to when its changes are known, of several locations the oldest.

    `webhooks` tells what its webhooks delivered, as all replicas have `counted` it."""
    states = {state.name: state for state in feeds}
    rows = []
    for name, tracker in sorted((context.loaded.trackers if context.loaded else {}).items()):
        state = states.get(feed_name(name))
        cursor = cursor_of(state)
        failing = state.health.message if state is not None and not state.health.clean else ""
        rows.append(
            {
                "name": name,
                "kind": tracker.kind,
                "polled": tracker.polled,
                "webhook": tracker.webhook,
                "webhooks": plain(webhook_health(tracker, counted.get(name))),
                "mark": plain(min(cursor.marks.values(), default=None) if cursor else None),
                "swept_at": plain(cursor.swept_at if cursor else None),
                "last_read_at": plain(state.last_success if state else None),
                "trouble": failing or trouble_of(cursor, tracker),
            }
        )
    return rows


async def reload(context: Context) -> Plain:
    """Load the configuration again and apply it; the plan says what changed and what was refused."""
    return dict(await context.running().reload())


async def diff(context: Context) -> Plain:
    """What `reload` would do."""
    return dict(await context.running().diff())


async def check_config(context: Context) -> Plain:
    """Every finding in the files as they are now, which a running controller may not have loaded yet."""
    rows = await asyncio.to_thread(config_findings, site_of(context.loaded).directory)
    return {"items": rows, "next": None}


async def check_store(context: Context) -> Plain:
    """Look for inconsistencies; `problems` is empty when the store is sound."""
    problems = list(await context.store.check())
    space = await context.store.space()
    return {"ok": not problems, "problems": problems, "space": plain(space)}


async def backup(context: Context, *, target: str) -> Plain:
    """Write a consistent copy to `target` while everything runs. Never overwrites."""
    path = Path(target).expanduser().absolute()
    if path.exists():
        raise Refused(f"{path} exists already", fix="Name a new file, or move that one away")
    if not path.parent.is_dir():
        raise Refused(f"there is no folder {path.parent}", fix="Make it first")
    await context.store.backup(str(path))
    return {"target": str(path), "bytes": path.stat().st_size if path.exists() else 0}
