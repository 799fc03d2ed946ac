"""Operations on trackers: what they read, and whether a token may do what tickets need.

Only `fix` writes: labels that are missing, and webhooks that were switched off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from harken.docs_urls import address_of
from harken.errors import HarkenError
from harken.feed import FeedState
from harken.operate.context import Context
from harken.operate.output_rows import Plain, plain
from harken.operate.paging import page_by
from harken.operate.ticket_lookup import tracker_of, trackers_of
from harken.operate.tracker_webhook_health import WebhookHealth, webhook_health, webhook_path
from harken.operate.unreadable_tracker_locations import cursor_of, trouble_of
from harken.operate.webhook_registration_check import Registered, judge_webhooks, webhooks_to
from harken.ticket import Access, Actor, Ticket, TicketTracker
from harken.tickets import (
    Lifecycle,
    ProjectSettings,
    Standing,
    TrackerSettings,
    Trusted,
    feed_name,
    judge,
    resolve,
    scope_of,
    standing,
    trigger_name,
)
from harken.tickets.webhook_loss import stored_deliveries

__all__ = ["fix", "list_trackers", "test"]

SHOWN = 20
MOST_FORECAST = 1_000
WRITES = 4
"""What a ticket costs in writes, from the label to the end of its run."""


async def list_trackers(context: Context, *, cursor: str = "", limit: int = 0) -> Plain:
    """All trackers with their projects, how they are read, and how far; and those that were refused, with the place."""
    states = {state.name: state for state in await context.store.feeds()}
    counted = await stored_deliveries(context.store)
    refused = _refusals(context)
    rows = [_refused_row(name, reason) for name, reason in refused.items() if name not in trackers_of(context)]
    for settings in trackers_of(context).values():
        state = states.get(feed_name(settings.name))
        rows.append(
            {
                "name": settings.name,
                "kind": settings.kind,
                "projects": [project.name for project in settings.projects],
                "locations": list(settings.locations),
                "polled": settings.polled,
                "interval": settings.interval,
                "webhook": settings.webhook,
                "webhooks": plain(webhook_health(settings, counted.get(settings.name))),
                "mark": plain(state.watermark) if state else None,
                "last_read": plain(state.last_success) if state else None,
                "next_read": plain(state.next_due) if state else None,
                "state": state.health.state if state else "new",
                "message": _message(settings, state, refused.get(settings.name, "")),
            }
        )
    return page_by(rows, cursor, limit)


def _refusals(context: Context) -> dict[str, str]:
    """What is wrong with each tracker that cannot be used as it is written, with the place."""
    reasons = {}
    for label, findings in (context.loaded.refused if context.loaded else {}).items():
        kind, _, name = label.partition(":")
        if kind == "tracker":
            reasons[name] = str(next((one for one in findings if one.severity == "error"), findings[0]))
    return reasons


def _refused_row(name: str, reason: str) -> Plain:
    row: Plain = dict.fromkeys(("webhooks", "mark", "last_read", "next_read"))
    row |= {"name": name, "kind": "", "projects": [], "locations": [], "polled": False, "interval": 0.0}
    return row | {"webhook": False, "state": "refused", "message": reason}


def _message(settings: TrackerSettings, state: FeedState | None, refused: str) -> str:
    trouble = (state.health.message if state else "") or trouble_of(cursor_of(state), settings)
    old = f"the old version runs, as what is written now is refused: {refused}" if refused else ""
    return "; ".join(filter(None, (trouble, old)))


async def test(context: Context, *, name: str) -> Plain:
    """Prove what the token may do, and tell what the newest tickets would start. Changes nothing."""
    settings = tracker_of(context, name)
    webhooks = webhook_health(settings, (await stored_deliveries(context.store)).get(name))
    places = []
    for location, tracker in context.running().trackers(name).items():
        try:
            place = await _test_location(context, settings, location, tracker)
            registered = await _registered(location, tracker, webhooks)
            ok = place["ok"] and not (registered and registered.problem)
            places.append(place | {"ok": ok, "webhooks": plain(registered)})
        except HarkenError as error:
            places.append({"location": location, "ok": False, "problem": error.message, "fix": error.fix})
    ok = all(place["ok"] for place in places) and not (webhooks and webhooks.problem)
    return {"tracker": name, "kind": settings.kind, "ok": ok, "locations": places, "webhooks": plain(webhooks)}


async def fix(context: Context, *, name: str) -> Plain:
    """Make the lifecycle labels that are missing, and have webhooks tested that the platform has stopped."""
    settings = tracker_of(context, name)
    made, revived = {}, {}
    for location, tracker in context.running().trackers(name).items():
        made[location] = list(await tracker.ensure_labels([settings.lifecycle.label(state) for state in Lifecycle]))
        revived[location] = await _revive(settings, tracker)
    return {"tracker": name, "made": made, "revived": revived}


async def _revive(settings: TrackerSettings, tracker: TicketTracker) -> list[str]:
    """The addresses of ours to which the platform sends again."""
    found = await tracker.webhooks() or () if settings.webhook else ()
    stopped = [hook for hook in webhooks_to(webhook_path(settings), found) if hook.state in ("probation", "disabled")]
    return [hook.url for hook in stopped if await tracker.revive_webhook(hook)]


async def _test_location(context: Context, settings: TrackerSettings, location: str, tracker: TicketTracker) -> Plain:
    own = await tracker.own_account()
    access = await tracker.access_of(own)
    labels = list(dict.fromkeys(name for project in settings.projects for name in project.routes.by_label))
    waiting = await _first_tickets(tracker, [*labels, settings.lifecycle.label(Lifecycle.PENDING)])
    rows = [await _verdict(settings, location, tracker, ticket, own) for ticket in waiting[:SHOWN]]
    # of those that are not shown nobody has looked at who put the label on
    refused = {row["ticket"] for row in rows if row["trusted"] is False}
    ready = [ticket for ticket in waiting if ticket.ref not in refused and _place(settings, location, ticket)[1].ready]
    missing = await tracker.missing_labels([settings.lifecycle.label(state) for state in Lifecycle])
    may_write = access in (Access.TRIAGE, Access.WRITE)
    problem = "" if may_write or access is Access.UNKNOWN else f"{own.login} may not change labels here"
    return {
        "location": location,
        "ok": not problem,
        "problem": problem,
        "fix": f"Give the token the rights in the table of {address_of('docs/how-to/tickets.md')}" if problem else "",
        "account": own.login,
        "access": access.name.lower(),
        "missing_labels": list(missing),
        "tickets": rows,
        "forecast": await _forecast(context, settings, location, ready),
    }


async def _registered(location: str, tracker: TicketTracker, health: WebhookHealth | None) -> Registered | None:
    """The webhooks that the platform has for our address; None if the tracker takes none."""
    if health is None:
        return None
    return judge_webhooks(await tracker.webhooks(), health.path, location or "the platform", heard=health.delivered)


async def _first_tickets(tracker: TicketTracker, labels: Sequence[str]) -> list[Ticket]:
    """Open tickets with one of these labels, newest change first; of very many only the first ones listed."""
    found: dict[str, Ticket] = {}
    page: str | None = None
    while labels:
        listed = await tracker.list_labelled(labels, closed=False, page=page)
        found |= {ticket.id: ticket for ticket in listed.tickets}
        page = listed.next
        if page is None or len(found) >= MOST_FORECAST:
            break
    return sorted(found.values(), key=lambda ticket: str(ticket.updated_at or ""), reverse=True)


def _place(settings: TrackerSettings, location: str, ticket: Ticket) -> tuple[ProjectSettings | None, Standing]:
    projects = [project for project in settings.projects if project.location == location]
    project = settings.project(resolve(ticket, [project.scope for project in projects]).project)
    if project is None:
        return None, Standing(state="unrouted", reason="no project wants it")
    return project, standing(ticket, scope_of(settings, project))


async def _verdict(
    settings: TrackerSettings, location: str, tracker: TicketTracker, ticket: Ticket, own: Actor
) -> Plain:
    project, stands = _place(settings, location, ticket)
    row: dict[str, Any] = {
        "ticket": ticket.ref,
        "title": ticket.title,
        "project": project.name if project else "",
        "standing": stands.state,
        "pipeline": stands.pipeline,
        "trusted": None,
        "reason": stands.reason,
    }
    if project is None or not stands.ready or not stands.label:
        return row
    trusted = await _trusted(tracker, ticket, stands.label, project, own)
    return row | {"trusted": trusted.yes, "reason": trusted.reason}


async def _trusted(tracker: TicketTracker, ticket: Ticket, label: str, project: ProjectSettings, own: Actor) -> Trusted:
    """Whether whoever put the label on last may start the pipeline."""
    history = await tracker.label_history(ticket) or ()
    added = [change for change in history if change.added and change.label.casefold() == label.casefold()]
    actor = added[-1].actor if added else None
    if actor is not None and actor.access is Access.UNKNOWN:
        actor = msgspec.structs.replace(actor, access=await tracker.access_of(actor))
    return judge(actor, project.trust, own.id)


async def _forecast(context: Context, settings: TrackerSettings, location: str, ready: Sequence[Ticket]) -> Plain:
    """How many tickets would be claimed now, and by the last runs how long that takes and costs."""
    projects = Counter(project.name for ticket in ready if (project := _place(settings, location, ticket)[0]))
    seconds = cost = 0.0
    known = True
    for name, count in projects.items():
        page = await context.store.runs(
            trigger=trigger_name(settings.name, name), status="done", limit=SHOWN, journals=True
        )
        lasted = [
            (run.finished_at - run.started_at).total_seconds()
            for run in page.items
            if run.finished_at is not None and run.started_at is not None
        ]
        known = known and bool(lasted)
        seconds += count * (sum(lasted) / len(lasted) if lasted else 0.0)
        spent = [sum(record.usd for record in run.journal) for run in page.items]
        cost += count * (sum(spent) / len(spent) if spent else 0.0)
    return {
        "tickets": len(ready),
        "by_project": dict(projects),
        "hours": round(seconds / 3600, 2) if known and ready else None,
        "usd": round(cost, 2) if known and ready else None,
        "writes": len(ready) * WRITES,
    }
