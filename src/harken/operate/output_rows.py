"""Flat rows with stable names for the CLI, API, MCP and UI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from harken.event import Recorded, Span
from harken.feed import Feed, FeedState, Trigger, TriggerState
from harken.operate.wording import schedule_text
from harken.runs import REPLAYED, Run, StepRecord
from harken.schedule import Every
from harken.source import Announced, Lag
from harken.store import Backlog, DeadLetter
from harken.tickets import tracker_of

if TYPE_CHECKING:
    from harken.operate.trigger_status import TriggerStatus

__all__ = [
    "Plain",
    "dead_row",
    "event_row",
    "feed_row",
    "gaps",
    "interval",
    "lag_row",
    "outcome_of",
    "own_secrets",
    "plain",
    "run_detail",
    "run_row",
    "shorten",
    "spans",
    "title_of",
    "trigger_row",
]

Plain: TypeAlias = dict[str, Any]

SHORT = 120
TITLE = 60
TITLES = (
    "title",
    "summary",
    "name",
    "headline",
    "subject",
    "text",
    "message",
    "content",
    "snippet",
    "description",
    "body",
)
"""The fields of an event that say in words what it is about, the first that has some."""
OF_MAIL = ("subject", "snippet", *TITLES)
"""The same of a mail: its others may be what an expression extracted, the name of a customer for one."""
WRAPPERS = (
    "event", "data", "issue", "pull_request", "merge_request", "object_attributes", "work_item", "incident", "alert",
    "message", "object", "fields", "annotations", "resource", "payload",
)  # fmt: skip
"""What services put around the thing that a webhook is about."""
DEEPEST_TITLE = 3
_KINDS = {"poll": "poll", "push": "webhook", "stream": "stream", "internal": "event"}


def plain(value: Any) -> Any:
    """The value as JSON holds it: times are text, structs are dicts, tuples are lists."""
    return msgspec.json.decode(msgspec.json.encode(value))


def own_secrets(id: str) -> str:
    """How the names of the secrets begin that the trigger row of this id brought along."""
    return f"trigger-{id}-"


def event_row(event: Recorded, names: Mapping[str, str], feed: str) -> Plain:
    """An event; `names` maps trigger uids in verdicts to names, `feed` is what people call its feed."""
    verdicts = [
        {
            "trigger": names.get(verdict.trigger, verdict.trigger),
            "outcome": verdict.outcome,
            "reason": verdict.reason,
            "run_id": verdict.run_id,
        }
        for verdict in event.verdicts
    ]
    return {
        "id": event.id,
        "feed": feed,
        "feed_id": event.feed,
        "key": event.key,
        "subject": event.subject,
        "title": title_of(event.data),
        "state": event.state,
        "type": event.type,
        "occurred_at": _text(event.occurred_at),
        "recorded_at": _text(event.recorded_at),
        "data": plain(event.data),
        "verdicts": verdicts,
        "repeats": event.repeats,
        "last_repeat_at": _text(event.last_repeat_at),
    }


def title_of(data: Any, depth: int = 0) -> str:
    """What an event is about in words, in one short line; empty if none of its fields says so.

    A webhook is as its service sent it: the title of an issue is in the issue, and that may be in `data`."""
    fields = data if isinstance(data, Mapping) else {}
    for name in OF_MAIL if "sender_domain" in fields and "subject" in fields else TITLES:
        text = fields.get(name)
        if isinstance(text, str) and text.strip():
            line = " ".join(text.split())
            return line if len(line) <= TITLE else f"{line[: TITLE - 1]}…"
    inner = (fields[name] for name in WRAPPERS if name in fields) if depth < DEEPEST_TITLE else ()
    return next((found for one in inner if (found := title_of(one, depth + 1))), "")


def outcome_of(run: Run) -> str:
    """The run's status, or `filtered` for a done run that a filter step ended. The run needs its journal."""
    if run.status != "done":
        return run.status
    ends = [at for at, record in enumerate(run.journal) if _stopped(record)]
    if not ends:
        return run.status
    stop, later = run.journal[ends[-1]], run.journal[ends[-1] + 1 :]
    # inside a loop or a branch of parallel a filter ends only that, and the record of the loop comes after it
    inside = all(r.action in ("if", "switch") and stop.path.startswith(f"{r.path}.") for r in later)
    return "filtered" if inside else run.status


def _stopped(record: StepRecord) -> bool:
    return record.action == "filter" and isinstance(record.output, Mapping) and record.output.get("passed") is False


def run_row(run: Run) -> Plain:
    return {
        "id": run.id,
        "trigger": run.trigger,
        "workflow": run.workflow,
        "status": run.status,
        "outcome": outcome_of(run),
        "event_keys": list(run.event_keys),
        "attempt": run.attempt,
        "created_at": _text(run.created_at),
        "started_at": _text(run.started_at),
        "finished_at": _text(run.finished_at),
        "seconds": _seconds(run.started_at, run.finished_at),
        "error": run.error,
        "hold": run.hold,
        "due_at": _text(run.due_at),
        "waiting_for": run.waiting_for,
    }


def is_replay(run: Run) -> bool:
    """Whether the run is of an event that was replayed."""
    return isinstance(run.input, Mapping) and REPLAYED in run.input


def input_of(run: Run) -> Any:
    """What the run was given; None if it takes its event as it is."""
    if not is_replay(run):
        return run.input
    return {name: value for name, value in run.input.items() if name != REPLAYED} or None


def run_detail(run: Run) -> Plain:
    return run_row(run) | {
        "workflow_rev": run.workflow_rev,
        "event_ids": list(run.event_ids),
        "input": plain(input_of(run)),
        "output": plain(run.output),
        "replay": is_replay(run),
        "priority": run.priority,
        "cancel_requested": run.cancel_requested,
        "parent": run.parent,
        "replay_of": run.replay_of,
        "steps": [_step(record) for record in run.journal],
    }


def trigger_row(
    trigger: TriggerState,
    definition: Trigger | None,
    feed: Feed | None,
    state: FeedState | None,
    found: TriggerStatus,
    backlog: Backlog,
) -> Plain:
    return {
        "name": trigger.name,
        "type": trigger_type(feed),
        "status": found.status,
        "reason": found.reason,
        "advice": found.advice,
        "needs_person": found.needs_person,
        "feed": feed.display_name if feed else definition.feed if definition else "",
        "feed_id": definition.feed if definition else "",
        "integration": feed.integration if feed else "",
        "workflow": ", ".join(definition.workflows) if definition else "",
        "interval_seconds": interval(feed),
        "failures": state.health.failures if state else 0,
        "fired": trigger.fired,
        "held": sum(backlog.held.values()),
        "dead": backlog.dead,
        "last_fired_at": _text(trigger.last_fired_at),
        "last_tick_at": _text(state.last_tick if state else None),
        "last_read_at": _text(state.last_success if state else None),
        "next_read_at": _text(_next_read(trigger, state, found)),
        "paused": trigger.paused,
        "start_line": _text(trigger.start_line),
    }


def _next_read(trigger: TriggerState, state: FeedState | None, found: TriggerStatus) -> datetime | None:
    """When the feed is read next. A feed that stopped has none, unless it is probed and no person has paused it."""
    if state is None or (found.status == "paused" and (trigger.paused or not state.health.probed)):
        return None
    return state.next_due


def trigger_type(feed: Feed | None) -> str:
    """The word a person wrote under `trigger:`; `ticket` for a project of a tracker."""
    if feed is None:
        return ""
    if tracker_of(feed.name):
        return "ticket"
    return "schedule" if feed.kind == "cron" else _KINDS[feed.way]


def interval(feed: Feed | None) -> float | None:
    """The seconds between two reads, where they are regular."""
    return feed.schedule.seconds if feed and isinstance(feed.schedule, Every) else None


def feed_row(state: FeedState, feed: Feed | None, listeners: Sequence[str]) -> Plain:
    health = state.health
    return {
        "name": feed.display_name if feed else state.name,
        "id": state.name,
        "kind": feed.kind if feed else "",
        "integration": feed.integration if feed else "",
        "way": feed.way if feed else "",
        "schedule": schedule_text(feed.schedule) if feed else "",
        "health": "ok" if health.clean else "paused" if health.state == "paused" else "failing",
        "failures": health.failures,
        "error": health.message if not health.clean else "",
        "last_read_at": _text(state.last_success),
        "next_read_at": _text(state.next_due),
        "reads": state.reads,
        "memory": state.memory,
        "watermark": _text(state.watermark),
        "triggers": list(listeners),
    }


def lag_row(lag: Lag | None) -> Plain:
    """What waits at the broker of a stream; None where it does not say, and of every other feed."""
    return {"lag_messages": lag.messages if lag else None, "lag_seconds": lag.seconds if lag else None}


def announced_row(announced: Announced | None) -> Plain:
    """How many changes of a feed with a doorbell were announced, and how many not; None of every other feed."""
    return {
        "announced": announced.announced if announced else None,
        "unannounced": announced.missed if announced else None,
    }


def dead_row(buried: DeadLetter, label: Callable[[str], str]) -> Plain:
    """A dead letter. That of an event has its feed in place of a trigger; `label` is what people call it."""
    return {
        "id": buried.id,
        "what": buried.what,
        "trigger": buried.trigger if buried.what == "run" else label(buried.trigger),
        "key": buried.key,
        "reason": buried.reason,
        "at": _text(buried.at),
    }


def spans(coverage: Sequence[Span]) -> list[Plain]:
    return [{"start": _text(span.start), "end": _text(span.end)} for span in coverage]


def gaps(coverage: Sequence[Span]) -> list[Plain]:
    """What lies between the proven spans: times that no read has covered."""
    ordered = sorted(coverage, key=lambda span: span.start)
    between = [Span(before.end, after.start) for before, after in pairwise(ordered)]
    return spans([gap for gap in between if gap.start < gap.end])


def shorten(value: Any, most: int = SHORT) -> str:
    """The value as JSON, cut to a length that still tells two cursors apart."""
    text = "" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def _step(record: StepRecord) -> Plain:
    return {
        "path": record.path,
        "action": record.action,
        "status": record.status,
        "attempt": record.attempt,
        "retries": record.retries,
        "tries": record.attempt + record.retries,
        "seconds": _seconds(record.started_at, record.finished_at),
        "input": plain(record.input),
        "output": plain(record.output),
        "error": record.error,
        "warnings": list(record.warnings),
        "started_at": _text(record.started_at),
        "finished_at": _text(record.finished_at),
        "tokens": record.tokens,
        "usd": record.usd,
        "from_run": record.from_run,
    }


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None or end is None else round((end - begin).total_seconds(), 3)


def _text(moment: datetime | None) -> Any:
    return None if moment is None else plain(moment)
