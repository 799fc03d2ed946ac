"""Executes a run before it is committed, so that it is over when it is committed: one write instead of three.

Only plans none of whose steps waits, changes anything outside, emits an event or reads `run` (see Plan.early). What is
found here counts only if the commit takes it: nothing is acknowledged before it is on disk, and what the commit does
not take, or what does not end well here, is executed after it as any other run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from harken.event import Event, Recorded
from harken.run.execute import Execution, TryResult, execute
from harken.runs import Claimed, Finished
from harken.store import EarlyEnd, Intent

__all__ = ["DONE", "as_claimed", "find_end", "may_end_early"]

MOST_BYTES = 100_000
"""Of output and journal: a run with more is written on its own, so that no commit becomes too large by it."""

DONE = EarlyEnd()

_encode = msgspec.json.Encoder().encode


def may_end_early(intent: Intent) -> bool:
    """Whether its run, should it start with the commit, depends on no other run and is watched by nobody.

    Those with a slot, a window, a throttle, a dedupe value, quiet hours or a hold are left to the normal way.
    """
    return (
        intent.overlap == "allow"
        and intent.gather is None
        and not intent.hold
        and not intent.watched
        and intent.quiet is None
        and intent.distinct is None
        and intent.rate is None
    )


def as_claimed(intent: Intent, trigger: str, feed: str, event: Event, now: datetime) -> Claimed:
    """The run as a worker would claim it, but for what only the commit knows: its id and that of its event."""
    recorded = Recorded(
        id=0,
        feed=feed,
        key=event.key,
        subject=event.subject,
        state=event.state,
        type=event.type,
        occurred_at=event.occurred_at,
        recorded_at=now,
        data=event.data,
    )
    return Claimed(
        id="",
        token=1,
        trigger=trigger,
        workflow_rev=intent.workflow_rev,
        attempt=1,
        max_attempts=intent.max_attempts,
        events=(recorded,),
        input=msgspec.json.decode(intent.input) if intent.input else None,
        created_at=now,
        alone=True,
    )


def find_end(execution: Execution) -> EarlyEnd | None:
    """Execute a plan that is `early`. None unless it ends well, with results that can be stored."""
    executing = execute(execution)
    try:
        executing.send(None)
    except StopIteration as stop:
        return _encoded(stop.value)
    except Exception:
        # the normal try meets it again, and deals with it
        return None
    executing.close()
    raise AssertionError(f"workflow {execution.plan.name!r} waits although none of its steps may")


def _encoded(ended: TryResult) -> EarlyEnd | None:
    outcome, unwritten = ended.outcome, ended.unwritten
    if not isinstance(outcome, Finished) or unwritten.events:
        return None
    try:
        records = tuple(_encode(record) for record in unwritten.records)
        output: Any = b"" if outcome.output is None else _encode(outcome.output)
    except (ValueError, TypeError, msgspec.MsgspecError):
        return None
    if len(output) + sum(map(len, records)) > MOST_BYTES:
        return None
    return EarlyEnd(output=output, records=records, filtered=outcome.filtered)
