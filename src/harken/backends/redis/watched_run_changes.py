"""Watched runs that have moved. A script that gives such a run another state lists it in `moved`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from harken.backends.redis.codec import moment
from harken.backends.redis.connection_and_name_cache import UsesSession
from harken.backends.run_states_ids_and_reasons import STATES
from harken.backends.watched_run_changes import Turns
from harken.store import MovedRun

__all__ = ["RedisMoved"]

RUNS_PER_CALL = 500


class RedisMoved(UsesSession):
    _turns: Turns

    async def moved_runs(self, seen: Mapping[str, int] = MappingProxyType({}), limit: int = 200) -> Sequence[MovedRun]:
        session = await self._ready()
        versions = list(seen.items())
        for begin in range(0, len(versions), RUNS_PER_CALL):
            args = session.arguments()
            some = [(args.run(run_id), version) for run_id, version in versions[begin : begin + RUNS_PER_CALL]]
            await session.connection.write("moved.deal_with", args, (some,))
        return await self._turns.take(limit, self._read)

    async def _read(self, after: int, last: int, limit: int) -> list[tuple[int, MovedRun]]:
        session = await self._ready()
        rows = await session.connection.query("moved.moved", session.arguments(), (after, last, limit))
        await session.learn_names(row[4] for row in rows)
        events = await session.events(sorted({int(row[6]) for row in rows if row[6]}), with_verdicts=False)
        subjects = {event.id: event.subject for event in events}
        return [
            (
                int(number),
                MovedRun(
                    id=run_id.hex(),
                    seen=int(version),
                    trigger=session.trigger_name(uid),
                    subject=subjects.get(int(event), "") if event else "",
                    status=STATES[int(state)],  # type: ignore[arg-type]
                    since=moment(since),
                ),
            )
            for run_id, number, version, state, uid, since, event in rows
        ]
