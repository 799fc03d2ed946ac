"""Claims: workers take ready runs, keep them, and ask when to come again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from harken.backends.codec import decode_steps, decode_trigger, micros
from harken.backends.redis.codec import END_REASONS, moment, moment_or_none, recorded
from harken.backends.redis.connection_and_name_cache import Session, UsesSession
from harken.backends.run_states_ids_and_reasons import STATES
from harken.event import Recorded
from harken.runs import Claimed
from harken.schedule import quiet_hours

__all__ = ["RedisClaims"]

CLAIMS_PER_CALL = 200


class RedisClaims(UsesSession):
    async def claim(self, holder: str, limit: int, seconds: float) -> Sequence[Claimed]:
        session = await self._ready()
        claimed: list[Claimed] = []
        spans: list[tuple[str, int, int, int]] = []
        while len(claimed) < limit:
            room = min(limit - len(claimed), CLAIMS_PER_CALL)
            first = holder not in session.holders
            instructions = (holder, session.life, room, round(seconds * 1e6), first, spans)
            rows, unknown, now = await session.connection.write("claims.claim", session.arguments(), instructions)
            session.holders.add(holder)
            await session.learn_names(row[2] for row in rows)
            claimed += [await _claimed(session, row) for row in rows]
            # the script cannot compute quiet hours from a calendar: give it those it asks for, and try again
            spans = [await _quiet_span(session, uid.decode(), int(now)) for uid in unknown]
            if len(rows) < room and not spans:
                break
        return claimed

    async def extend(
        self, claims: Mapping[str, int], seconds: float
    ) -> Mapping[str, Literal["kept", "lost", "cancel"]]:
        session = await self._ready()
        answers: dict[str, Literal["kept", "lost", "cancel"]] = {}
        held = list(claims.items())
        for begin in range(0, len(held), CLAIMS_PER_CALL):
            args, some = session.arguments(), held[begin : begin + CLAIMS_PER_CALL]
            pairs = [(args.run(run_id), token) for run_id, token in some]
            reply = await session.connection.write("claims.extend", args, (round(seconds * 1e6), pairs))
            answers.update((run_id, answer.decode()) for (run_id, _), answer in zip(some, reply, strict=True))
        return answers

    async def next_due(self) -> datetime | None:
        session = await self._ready()
        return moment_or_none(await session.connection.query("claims.next_due", session.arguments(), ()))


async def _quiet_span(session: Session, uid: str, now: int) -> tuple[str, int, int, int]:
    """Trigger, now, begin and end of its quiet hours: the current ones, or else the next."""
    key = session.connection.key(f"tr:{uid}")
    [definition] = await session.connection.execute(("HGET", key, "definition"))
    quiet = decode_trigger(session.seal.open(definition)).quiet
    if quiet is None:
        # the trigger has no quiet hours now: return an empty span
        return uid, now, now + 1_000_000, now + 1_000_000
    begin, end = quiet_hours(quiet, moment(now))
    return uid, now, micros(begin), micros(end)


async def _claimed(session: Session, row: Sequence[Any]) -> Claimed:
    run_id, token, trigger, rev, attempt, most, parent, made, stop, event, found, gathered, extra, journal = row
    events: list[Recorded] = []
    if event:
        alone = recorded(session.seal, int(event), found)
        events = [alone] if alone else []
    elif gathered:
        events = await session.events(sorted({int(each) for each in gathered}), with_verdicts=False)
    return Claimed(
        id=run_id.hex(),
        token=token,
        trigger=session.trigger_name(trigger),
        workflow_rev=rev.decode(),
        attempt=int(attempt),
        max_attempts=int(most),
        events=tuple(events),
        input=session.json(extra[0]) if extra else None,
        journal=decode_steps(map(session.seal.open, journal)),
        answer=_answer(session, extra) if extra else None,
        parent=parent.hex(),
        created_at=moment(made),
        cancel_requested=bool(stop),
    )


def _answer(session: Session, extra: Sequence[bytes | None]) -> Any:
    """The answer of a person, or the result of the sub-run that the run waited for."""
    _, answer, child, state, why, output, error = extra
    if answer is not None:
        return session.json(answer)
    if child is None or state is None:
        return None
    message = END_REASONS.get(why or b"", "") or (session.text(error) if error else "")
    return {"run": child.hex(), "status": STATES[int(state)], "output": session.json(output), "error": message}
