"""Bugs that are planted into the engine, to see that the simulator finds them. Each is a change of one line or two."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import msgspec
import pytest

from harken.backends.run_states_ids_and_reasons import id_of
from harken.backends.sqlite import SqliteStore, run_creation_and_admission, runs
from harken.backends.sqlite.transaction_with_row_cache import Transaction
from harken.event import Event
from harken.ingest import poll
from harken.match.compiled_rules import Rule
from harken.simulation import sources
from harken.store import Commit, Committed, Stale
from harken.testing import scripted
from harken.testing.crashing import CrashingStore
from harken.tickets import Projector, TicketSource

__all__ = ["BUGS", "FLEET_BUGS", "TICKET_BUGS"]


def cursor_before_commit(patch: pytest.MonkeyPatch) -> None:
    """The cursor is written first, and the events of the page in a second commit."""

    def verb_of(store: CrashingStore, name: str) -> Any:
        verb = whole(store, name)
        if name != "commit":
            return verb

        async def commit(given: Commit) -> Committed | Stale:
            if given.token is not None and given.entries and given.cursor is not msgspec.UNSET:
                moved: Committed | Stale = await verb(msgspec.structs.replace(given, entries=(), claim=0))
                if isinstance(moved, Stale):
                    return moved
                given = msgspec.structs.replace(given, cursor=msgspec.UNSET, tick=None, done=False)
            answer: Committed | Stale = await verb(given)
            return answer

        return commit

    whole = CrashingStore.__getattr__
    patch.setattr(CrashingStore, "__getattr__", verb_of)


def acknowledged_before_commit(patch: pytest.MonkeyPatch) -> None:
    """The broker is told that a message is safe when it is handed over."""

    async def stream(self: Any, cursor: Any) -> Any:
        async for batch in whole(self, cursor):
            self._acknowledged = batch.cursor
            yield batch

    whole = sources.ScriptedStream.stream
    patch.setattr(sources.ScriptedStream, "stream", stream)


def later_than_the_start_line(patch: pytest.MonkeyPatch) -> None:
    """`>` for `>=`: what happens at the very moment of the start line does not count."""

    def made(self: Rule, *given: Any, **named: Any) -> None:
        whole(self, *given, **named)
        # times have microseconds: at or after the next one is after this one
        self.start_line += timedelta(microseconds=1)

    def begun_by(self: Rule, moment: datetime, *given: Any, **named: Any) -> bool:
        return moment >= self.start_line

    whole = Rule.__init__
    patch.setattr(Rule, "__init__", made)
    patch.setattr(Rule, "begun_by", begun_by)


def page_after_the_time(patch: pytest.MonkeyPatch) -> None:
    """`>` for `>=`: a page begins after the time of the last item, although others share it."""

    def place(item: Any) -> tuple[float, str]:
        return (item.stamp or 0.0, "~")

    patch.setattr(scripted, "_place", place)


def memory_pruned_early(patch: pytest.MonkeyPatch) -> None:
    """What two reads did not list is forgotten at once, and not after a day."""

    async def forget(self: SqliteStore, feed: str, token: int, listed: Any, before: Any) -> int:
        late = None if before is None else datetime.max.replace(tzinfo=before.tzinfo)
        return await whole(self, feed, token, listed, late)

    whole = SqliteStore.forget
    patch.setattr(SqliteStore, "forget", forget)
    patch.setattr(poll, "SWEEP_SECONDS", 600.0)


def gathering_keeps_the_last(patch: pytest.MonkeyPatch) -> None:
    """A run that gathers has only the event that came last."""

    async def commit(self: SqliteStore, given: Commit) -> Committed | Stale:
        answer = await whole(self, given)
        if isinstance(answer, Committed):
            for event, verdicts in zip(answer.event_ids, answer.verdicts, strict=True):
                for verdict in verdicts:
                    if verdict.outcome == "gathered":
                        run = bytes.fromhex(verdict.run_id)
                        self._database.tx.execute(KEEP_THE_LAST, (run, event))
        return answer

    whole = SqliteStore.commit
    patch.setattr(SqliteStore, "commit", commit)


def join_drops_a_part(patch: pytest.MonkeyPatch) -> None:
    """The part that completes a join is not in its run."""

    async def commit(self: SqliteStore, given: Commit) -> Committed | Stale:
        answer = await whole(self, given)
        if isinstance(answer, Committed):
            for event, verdicts in zip(answer.event_ids, answer.verdicts, strict=True):
                for verdict in verdicts:
                    if verdict.outcome == "gathered":
                        run = bytes.fromhex(verdict.run_id)
                        self._database.tx.execute(DROP_THE_NEWEST, (run, event))
        return answer

    whole = SqliteStore.commit
    patch.setattr(SqliteStore, "commit", commit)


def lease_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A replica that was frozen until another took over still writes what it had read."""
    patch.setattr(Transaction, "check_lease", lambda self, token, shard: None)


def claim_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A worker that was frozen until another claimed its run still writes its steps."""

    def claimed(tx: Transaction, run_id: str, token: int) -> int:
        found = tx.row("SELECT seq, token FROM runs WHERE id=?", (id_of(run_id),))
        assert found is not None
        return int(found[0])

    patch.setattr(runs, "_claimed_seq", claimed)


def ticket_without_slot(patch: pytest.MonkeyPatch) -> None:
    """Each webhook is another wish, which the slot of the ticket would keep from a second run; and it is not taken."""

    async def told(self: TicketSource, notices: Any) -> list[Event]:
        events = await whole(self, notices)
        return [msgspec.structs.replace(event, state=f"{event.state} {next(numbers)}") for event in events]

    numbers = count()
    whole = TicketSource._take_notices
    patch.setattr(TicketSource, "_take_notices", told)
    patch.setattr(run_creation_and_admission, "_would_skip", lambda *given: False)
    patch.setattr(run_creation_and_admission, "_take_slot", lambda *given: True)


def failed_write_given_up(patch: pytest.MonkeyPatch) -> None:
    """A label that could not be written once is not written any more."""

    def failed(self: Projector, tracker: Any, visit: Any, *given: Any) -> None:
        self._drop(visit)

    patch.setattr(Projector, "_failed", failed)


DROP_THE_NEWEST = """DELETE FROM run_events WHERE event=?2 AND run=(SELECT seq FROM runs WHERE id=?1)
AND (SELECT count(*) FROM run_events AS other WHERE other.run=run_events.run) > 1"""
KEEP_THE_LAST = "DELETE FROM run_events WHERE run=(SELECT seq FROM runs WHERE id=?) AND event<>?"

BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "cursor before commit": cursor_before_commit,
    "acknowledged before commit": acknowledged_before_commit,
    "> for >= at the start line": later_than_the_start_line,
    "> for >= at the border of a page": page_after_the_time,
    "memory pruned early": memory_pruned_early,
    "gathering keeps only the last": gathering_keeps_the_last,
    "debounce keeps only the last": gathering_keeps_the_last,
    "join drops a part": join_drops_a_part,
}

FLEET_BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the lease is not checked at a commit": lease_not_checked,
    "the claim is not checked at a step": claim_not_checked,
}
"""Bugs that only show where replicas share a store."""

TICKET_BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a run is claimed without its slot": ticket_without_slot,
    "a label that failed is given up": failed_write_given_up,
}
"""Bugs that only show on tickets."""
