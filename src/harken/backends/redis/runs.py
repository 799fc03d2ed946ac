"""What workers and people do to runs: journal, park, answer, settle, start, cancel, retry, release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from harken.backends.codec import micros
from harken.backends.redis.codec import Arguments, micros_or_false, step_charge
from harken.backends.redis.commit import caused_commits
from harken.backends.redis.connection_and_name_cache import Session, UsesSession
from harken.backends.run_states_ids_and_reasons import FINAL, READY, error_and_output, run_id_of
from harken.errors import NotFound
from harken.runs import BY_HAND, Again, Finished, Park, StepRecord
from harken.store import Commit, NewRun, Settlement, Stale

__all__ = ["RedisRuns"]

SETTLEMENTS_PER_CALL = 200


class RedisRuns(UsesSession):
    async def journal(
        self,
        run_id: str,
        token: int,
        records: Sequence[StepRecord],
        caused: Sequence[Commit] = (),
        start: Sequence[NewRun] = (),
    ) -> Stale | None:
        session = await self._ready()
        args = session.arguments()
        instructions = (
            args.run(run_id),
            token,
            [_step(args, record) for record in records],
            caused_commits(session, args, caused),
            [(await _new_run(session, args, new))[1] for new in start],
        )
        reply = await session.connection.write("runs.journal", args, instructions)
        return Stale(reply[1]) if reply[0] == b"stale" else None

    async def park(self, run_id: str, token: int, park: Park, record: StepRecord | None = None) -> None:
        session = await self._ready()
        args = session.arguments()
        child = args.run(park.waiting_for[4:]) if park.waiting_for.startswith("run:") else False
        step = False if record is None else _step(args, record)
        instructions = (args.run(run_id), token, micros_or_false(park.until), park.waiting_for, child, step)
        await session.connection.write("runs.park", args, instructions)

    async def answer(self, run_id: str, answer: Any) -> bool:
        session = await self._ready()
        args = session.arguments()
        return bool(await session.connection.write("runs.answer", args, (args.run(run_id), args.shut_json(answer))))

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Literal["settled", "lost"] | Stale]:
        session = await self._ready()
        answers: list[Literal["settled", "lost"] | Stale] = []
        for begin in range(0, len(settlements), SETTLEMENTS_PER_CALL):
            args, some = session.arguments(), settlements[begin : begin + SETTLEMENTS_PER_CALL]
            rows = [_settlement(session, args, one) for one in some]
            reply = await session.connection.write("runs.settle", args, (rows,))
            answers += [Stale(each[1]) if isinstance(each, list) else each.decode() for each in reply]
        return answers

    async def start(self, run: NewRun) -> str:
        session = await self._ready()
        args = session.arguments()
        run_id, row = await _new_run(session, args, run)
        await session.connection.write("runs.start", args, (row,))
        return run_id

    async def cancel(self, run_id: str, reason: str = BY_HAND) -> bool:
        session = await self._ready()
        args = session.arguments()
        with _named(run_id):
            return bool(await session.connection.write("runs.cancel", args, (args.run(run_id), args.shut(reason))))

    async def retry(self, run_id: str, *, workflow_rev: str = "", tries: int = 3, request: str = "") -> bool:
        session = await self._ready()
        args = session.arguments()
        instructions = (args.run(run_id), workflow_rev, tries, request, args.shut_json({}))
        with _named(run_id):
            return bool(await session.connection.write("runs.retry", args, instructions))

    async def release(self, trigger: str, *, drop: bool = False, hold: str = "") -> int:
        session = await self._ready()
        return int(await session.connection.write("runs.release", session.arguments(), (trigger, drop, hold)))

    async def release_run(self, run_id: str) -> bool:
        return await _change_run(await self._ready(), "runs.release_run", run_id)

    async def drop_dead_letter(self, run_id: str) -> bool:
        session = await self._ready()
        if run_id.startswith("event-"):
            number = int(run_id[6:])
            return bool(await session.connection.write("runs.drop_refused_event", session.arguments(), (number,)))
        return await _change_run(session, "runs.drop_dead_letter", run_id)


async def _change_run(session: Session, verb: str, run_id: str, *options: str | int) -> bool:
    args = session.arguments()
    with _named(run_id):
        return bool(await session.connection.write(verb, args, (args.run(run_id), *options)))


@contextmanager
def _named(run_id: str) -> Iterator[None]:
    """Scripts know runs by other names than people."""
    try:
        yield
    except NotFound:
        raise NotFound(f"there is no run {run_id!r}") from None


def _step(args: Arguments, record: StepRecord) -> tuple[Any, ...]:
    encoded = msgspec.json.encode(record)
    charge = step_charge(args, record, encoded)
    return args.text(args.seal.shut(encoded)), record.tokens, record.usd, charge


def _settlement(session: Session, args: Arguments, one: Settlement) -> tuple[Any, ...]:
    outcome = one.outcome
    error, output = error_and_output(outcome)
    again = isinstance(outcome, Again)
    counts = bool(one.trigger) and isinstance(outcome, Finished) and not outcome.filtered
    return (
        args.run(one.id),
        one.token,
        READY if again else FINAL[type(outcome)],
        micros(outcome.at) if isinstance(outcome, Again) else 0,
        isinstance(outcome, Again) and outcome.counts,
        args.shut(error) if error or again else False,
        False if output is None else args.shut_json(output),
        False if one.record is None else _step(args, one.record),
        caused_commits(session, args, one.caused),
        one.trigger if counts else False,
    )


async def _new_run(session: Session, args: Arguments, new: NewRun) -> tuple[str, tuple[Any, ...]]:
    """The id of the run, and the run as the script gets it."""
    uid = await session.uid_of(new.trigger) if new.trigger else ""
    run_id = run_id_of(session.seal, uid or new.workflow, 0, new.id_key, "by hand")
    return run_id.hex(), (
        uid,
        args.raw_name(run_id),
        new.workflow_rev,
        micros_or_false(new.due_at),
        new.max_attempts,
        list(new.event_ids),
        args.text(args.seal.shut(new.input)) if new.input else False,
        args.run(new.parent) if new.parent else False,
        args.run(new.replay_of) if new.replay_of else False,
        new.watched,
        [args.text(args.seal.shut(msgspec.json.encode(record))) for record in new.journal],
    )
