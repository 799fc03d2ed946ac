"""Operations on tickets that start pipelines: what becomes of them, and what a person may do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from harken.errors import NotFound, Refused
from harken.event import Recorded
from harken.operate.context import Context
from harken.operate.output_rows import Plain, plain, run_row
from harken.operate.paging import bounded
from harken.operate.ticket_lookup import FoundTicket, find_ticket, tracker_of, trackers_of
from harken.operate.ticket_run_summary import summary_of
from harken.runs import OPEN, Run
from harken.ticket import Ticket
from harken.tickets import (
    ProjectSettings,
    Route,
    TicketMemories,
    TicketMemory,
    TrackerSettings,
    feed_name,
    route,
    scope_of,
    standing,
    trigger_name,
)
from harken.tickets.event_from_ticket import Placed, event_of, released_event, vouch_for
from harken.tickets.write_pace import swap_in_turn

__all__ = ["adopt", "cancel", "claim", "list_tickets", "release", "retry", "show"]

RELEASED = "the ticket was released by hand"
SCANNED = 500
"""So many runs of a project are looked through for its tickets at a time."""


async def list_tickets(
    context: Context, *, tracker: str = "", project: str = "", state: str = "", limit: int = 50
) -> Plain:
    """Tickets that have had a run, newest first: what they show, how their newest run is doing, and what it came to.

    `state` is that of the run, or the lifecycle that the ticket shows."""
    wanted = [tracker_of(context, tracker)] if tracker else list(trackers_of(context).values())
    rows: list[Plain] = []
    more = False
    for settings in wanted:
        memories = await TicketMemories(context.store, settings.name).all()
        for one in settings.projects:
            if project in ("", one.name):
                found, older = await _project_rows(context, settings, one, memories)
                rows += found
                more = more or older
    kept = [row for row in rows if state in ("", row["status"], row["shown"])]
    kept.sort(key=lambda row: str(row["since"]), reverse=True)
    return {"items": kept[: bounded(limit)], "next": None, "more": more or len(kept) > bounded(limit)}


async def _project_rows(
    context: Context, settings: TrackerSettings, project: ProjectSettings, memories: Mapping[str, TicketMemory]
) -> tuple[list[Plain], bool]:
    """The tickets of a project by its last runs, and whether it has had older ones."""
    name = trigger_name(settings.name, project.name)
    page = await context.store.runs(trigger=name, limit=SCANNED, journals=True)
    newest: dict[str, Run] = {}
    for run in page.items:
        if run.event_ids:
            newest.setdefault(_ticket_id(run), run)
    found = await context.store.events_by_id([run.event_ids[0] for run in newest.values()])
    events = {event.id: event for event in found}
    rows = [
        _ticket_row(settings, project, events[run.event_ids[0]], run, memories.get(id))
        for id, run in newest.items()
        if run.event_ids[0] in events
    ]
    return rows, page.next is not None


def _ticket_row(
    settings: TrackerSettings, project: ProjectSettings, event: Recorded, run: Run, memory: TicketMemory | None
) -> Plain:
    data: Mapping[str, Any] = event.data if isinstance(event.data, Mapping) else {}
    return {
        "ticket": data.get("ref") or event.subject,
        "title": data.get("title", ""),
        "tracker": settings.name,
        "project": project.name,
        "pipeline": run.workflow,
        "status": run.status,
        "shown": str(memory.shown) if memory is not None and memory.shown is not None else "",
        "run": run.id,
        "since": plain(run.finished_at or run.started_at or run.created_at),
        "url": data.get("url", ""),
        "error": run.error,
        **summary_of(run.journal),
    }


async def show(context: Context, *, ticket: str, tracker: str = "") -> Plain:
    """One ticket: as its platform shows it, what that means for us, what we remember of it, and its runs."""
    found = await find_ticket(context, ticket, tracker)
    memory = await TicketMemories(context.store, found.settings.name).get(found.ticket.id)
    runs = await _runs_of(context, found)
    said = _where_it_stands(found, runs[0] if runs else None)
    newest = await context.store.run(runs[0].id) if runs else None
    return {
        "ticket": found.ticket.ref,
        "title": found.ticket.title,
        "url": found.ticket.url,
        "status": found.ticket.status,
        "closed": found.ticket.closed,
        "labels": list(found.ticket.labels),
        "tracker": found.settings.name,
        "project": found.project.name if found.project else "",
        **said,
        **summary_of(newest.journal if newest is not None else ()),
        "memory": plain(memory) if memory is not None else None,
        "runs": [run_row(run) for run in runs],
        "next": _next_command(found, runs[0] if runs else None),
    }


def _where_it_stands(found: FoundTicket, newest: Run | None) -> Plain:
    if found.project is None:
        return {"standing": "no project", "pipeline": "", "reason": "no project of the tracker wants this ticket"}
    stands = standing(found.ticket, scope_of(found.settings, found.project))
    chosen = _route_of(found.ticket, found.settings, found.project)
    reason = stands.reason
    if stands.ready and newest is not None and newest.status in OPEN:
        reason = f"its run {newest.id[:12]} is {newest.status}"
    return {"standing": stands.state, "pipeline": chosen.pipeline, "reason": reason}


def _next_command(found: FoundTicket, newest: Run | None) -> str:
    name = found.ticket.ref
    if newest is None:
        return f"harken tickets claim {name}" if found.project is not None else ""
    if newest.status == "waiting":
        return f"harken runs approve {newest.id[:12]}"
    if newest.status in OPEN:
        return f"harken runs show {newest.id[:12]}"
    return f"harken tickets retry {name}" if newest.status != "done" else f"harken runs show {newest.id[:12]}"


async def claim(context: Context, *, ticket: str, tracker: str = "", pipeline: str = "") -> Plain:
    """Start the pipeline of a ticket now, in the name of the operator: whoever put its label on, or without one.

    A ticket without the label of the pipeline gets it."""
    found = await find_ticket(context, ticket, tracker)
    project = _project_of(found)
    await _refuse_open(context, found)
    chosen = pipeline or _route_of(found.ticket, found.settings, project).pipeline
    known = pipelines_of(project)
    if chosen not in known:
        problem = f"{project.name} has no pipeline {chosen}" if chosen else f"no label of {found.ticket.ref} names one"
        raise Refused(problem, fix=f"Say --pipeline with one of: {', '.join(known) or 'none'}")
    return await _start(context, await _labelled(context, found, project, chosen), project)


async def retry(context: Context, *, ticket: str, tracker: str = "") -> Plain:
    """Run the ticket's pipeline once more, from its beginning."""
    found = await find_ticket(context, ticket, tracker)
    project = _project_of(found)
    newest = await _refuse_open(context, found)
    if newest is None:
        raise Refused(f"{found.ticket.ref} has had no run", fix=f"Start one: harken tickets claim {found.ticket.ref}")
    if newest.workflow not in pipelines_of(project):
        fix = f"Start another: harken tickets claim {found.ticket.ref} --pipeline NAME"
        raise Refused(f"{project.name} has no pipeline {newest.workflow} any more", fix=fix)
    return await _start(context, await _labelled(context, found, project, newest.workflow), project)


async def release(context: Context, *, ticket: str, tracker: str = "") -> Plain:
    """Give a stuck ticket back: its run is cancelled, our labels come off, and it can be claimed again."""
    found = await find_ticket(context, ticket, tracker)
    runs = await _runs_of(context, found)
    is_open = bool(runs) and runs[0].status in OPEN
    cancelled = runs[0].id if is_open and await context.store.cancel(runs[0].id, RELEASED) else ""
    removed = await _forget(context, found)
    context.nudge()
    return {
        "ticket": found.ticket.ref,
        "tracker": found.settings.name,
        "cancelled": cancelled,
        "removed": list(removed),
        "claimed_again": found.project is not None and _is_ready_without_us(found, found.project),
    }


async def cancel(context: Context, *, ticket: str, tracker: str = "") -> Plain:
    """Cancel the run of a ticket."""
    found = await find_ticket(context, ticket, tracker)
    runs = await _runs_of(context, found)
    if not runs or runs[0].status not in OPEN or not await context.store.cancel(runs[0].id):
        raise Refused(f"{found.ticket.ref} has no run that could be cancelled", fix="See: harken tickets list")
    context.nudge()
    return run_row(await context.run(runs[0].id))


async def adopt(context: Context, *, name: str) -> Plain:
    """Rebuild the memory of a tracker's tickets from what is on them, after the store was lost."""
    tracker_of(context, name)
    return {"tracker": name, **plain(await context.running().adopt_tickets(name))}


def pipelines_of(project: ProjectSettings) -> Sequence[str]:
    named = [*project.routes.by_label.values(), project.routes.default]
    return list(dict.fromkeys(name for name in named if name))


async def _refuse_open(context: Context, found: FoundTicket) -> Run | None:
    """The newest run of the ticket. Raise Refused if it is not over."""
    runs = await _runs_of(context, found)
    if runs and runs[0].status in OPEN:
        fix = f"Cancel it first: harken tickets cancel {found.ticket.ref}"
        raise Refused(f"{found.ticket.ref} has the run {runs[0].id[:12]}, which is {runs[0].status}", fix=fix)
    return runs[0] if runs else None


async def _labelled(context: Context, found: FoundTicket, project: ProjectSettings, pipeline: str) -> FoundTicket:
    """The ticket with a label that means this pipeline, put on if it has none, and without one that means another."""
    if _route_of(found.ticket, found.settings, project).pipeline == pipeline:
        return found
    label = next((name for name, wanted in project.routes.by_label.items() if wanted == pipeline), "")
    if not label:
        # by_label is not empty, so the default does not count
        raise Refused(f"no label of {project.name} means {pipeline}", fix="Add one to pipeline_from_label")
    others = {name.casefold() for name, wanted in project.routes.by_label.items() if wanted != pipeline}
    surplus = [name for name in found.ticket.labels if name.casefold() in others]
    ticket = await _swap(context, found, [label], surplus)
    return msgspec.structs.replace(found, ticket=ticket)


async def _start(context: Context, found: FoundTicket, project: ProjectSettings) -> Plain:
    bare = msgspec.structs.replace(found.ticket, labels=tuple(found.settings.lifecycle.others(found.ticket.labels)))
    stands = standing(bare, scope_of(found.settings, project))
    if not stands.ready:
        raise Refused(f"{found.ticket.ref} cannot start: {stands.reason}", fix="Change that on the ticket first")
    await _forget(context, found)
    placed = Placed(ticket=bare, standing=stands, project=project.name)
    await context.running().tell(feed_name(found.settings.name), [vouch_for(event_of(placed, found.settings.name))])
    runs = await _runs_of(context, found)
    if not runs:
        raise Refused(f"{found.ticket.ref} started nothing", fix=f"See: harken explain {_trigger(found, project)}")
    return run_row(runs[0])


async def _forget(context: Context, found: FoundTicket) -> Sequence[str]:
    """Take our labels off the ticket and forget it, so that its next sighting counts. Return the labels."""
    ours = found.settings.lifecycle.surplus(found.ticket.labels, None)
    if ours:
        await _swap(context, found, [], ours)
    await TicketMemories(context.store, found.settings.name).forget(found.ticket.id)
    project = found.project.name if found.project else ""
    released = released_event(found.ticket, project, found.settings.name, _stamp(context.clock.now()))
    await context.running().tell(feed_name(found.settings.name), [released])
    return ours


async def _swap(context: Context, found: FoundTicket, add: Sequence[str], remove: Sequence[str]) -> Ticket:
    """Swap labels of the ticket. Raise Deferred if the limit of writes of its account is used up for a while."""
    pace = context.running().write_pace(found.settings.name)
    return await swap_in_turn(pace, found.tracker, found.ticket, add, remove, by_hand=True)


async def _runs_of(context: Context, found: FoundTicket) -> list[Run]:
    """The runs of the ticket, newest first."""
    runs: list[Run] = []
    for project in found.settings.projects:
        name, before = trigger_name(found.settings.name, project.name), None
        while True:
            page = await context.store.runs(trigger=name, before=before, limit=SCANNED)
            runs += [run for run in page.items if _ticket_id(run) == found.ticket.id]
            if (before := page.next) is None:
                break
    return sorted(runs, key=lambda run: run.created_at, reverse=True)


def _ticket_id(run: Run) -> str:
    """The ticket of a run: the key of its event begins with it, and its state follows."""
    return run.event_keys[0].partition("@ready:")[0] if run.event_keys else ""


def _route_of(ticket: Ticket, settings: TrackerSettings, project: ProjectSettings) -> Route:
    return route(ticket.labels, project.routes, settings.lifecycle)


def _is_ready_without_us(found: FoundTicket, project: ProjectSettings) -> bool:
    bare = msgspec.structs.replace(found.ticket, labels=tuple(found.settings.lifecycle.others(found.ticket.labels)))
    return standing(bare, scope_of(found.settings, project)).ready


def _project_of(found: FoundTicket) -> ProjectSettings:
    if found.project is None:
        fix = f"See: harken trackers test {found.settings.name}"
        raise NotFound(f"no project of {found.settings.name} wants {found.ticket.ref}", fix=fix)
    return found.project


def _trigger(found: FoundTicket, project: ProjectSettings) -> str:
    return trigger_name(found.settings.name, project.name)


def _stamp(now: datetime) -> str:
    return now.isoformat(timespec="milliseconds")
