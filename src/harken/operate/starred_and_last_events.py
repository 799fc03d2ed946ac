"""The event bank of a trigger: starred events, and the last ones that fired, were filtered or failed.

They stay when retention deletes, so that the question "why" has an answer for longer than events are kept."""

from __future__ import annotations

from collections.abc import Sequence

from harken.errors import Malformed, NotFound, Refused
from harken.event import BANK_LISTS, Recorded
from harken.operate.context import Context
from harken.operate.output_rows import Plain, event_row, plain
from harken.operate.owner_access import heard
from harken.store.document_kinds import STARRED

__all__ = ["bank", "is_starred", "star", "unstar"]

NEWEST = 200
"""So many of the newest events are looked through for what housekeeping has not put into the bank yet."""
MOST = 200
LONGEST_NOTE = 500


async def bank(context: Context, *, name: str, limit: int = 10) -> Plain:
    """The last events of a trigger by outcome, newest first, and those that somebody starred for it."""
    if not 1 <= limit <= MOST:
        raise Malformed(f"limit must be 1 to {MOST}", fix="Leave it away for 10")
    state = await context.trigger(name)
    lists: dict[str, set[int]] = {"fired": set(), "filtered": set(), "error": set()}
    for found, ids in (await context.store.banked_events(state.name)).items():
        lists[found].update(ids)
    newest = await context.store.events(trigger=state.name, limit=NEWEST)
    names = await context.names()
    for event in newest.items:
        for verdict in event.verdicts:
            listed = BANK_LISTS.get(verdict.outcome)
            if listed and names.get(verdict.trigger, verdict.trigger) == state.name:
                lists[listed].add(event.id)
    answer: Plain = {"trigger": state.name, "keep": _keep(context)}
    answer["starred"] = await _starred(context, state.name)
    for listed, some in lists.items():
        events = await context.store.events_by_id(sorted(some, reverse=True)[:limit])
        answer[listed] = [await _row(context, event, state.name) for event in heard(context, events)]
    return answer


async def star(context: Context, *, id: int, trigger: str = "", note: str = "") -> Plain:
    """Keep an event for good, whatever retention says: for one trigger, or for all that decided about it."""
    if len(note) > LONGEST_NOTE:
        raise Refused(f"a note has at most {LONGEST_NOTE} characters", fix="Shorten it")
    if await context.store.event(id) is None:
        raise NotFound(f"there is no event {id}", fix="See: harken events list")
    if trigger:
        await context.trigger(trigger)
    await _refuse_others_star(context, id)
    value = {"by": context.principal.who, "at": plain(context.clock.now()), "trigger": trigger, "note": note}
    await context.store.put(STARRED, str(id), value)
    return {"event": id, "starred": True, **value}


async def unstar(context: Context, *, id: int, trigger: str = "") -> Plain:
    """Let retention have the event again."""
    await _refuse_others_star(context, id)
    if not await context.store.delete(STARRED, str(id)):
        raise NotFound(f"event {id} is not starred")
    return {"event": id, "starred": False}


async def _refuse_others_star(context: Context, id: int) -> None:
    """Raise Refused if somebody else has starred the event, and who asks may change only what is theirs."""
    found = await context.store.get(STARRED, str(id))
    if context.principal.limited and found is not None and found.value.get("by", "") != context.principal.who:
        raise Refused(f"event {id} was starred by somebody else", fix="It stays as long as they want it to")


async def is_starred(context: Context, id: int) -> bool:
    return await context.store.get(STARRED, str(id)) is not None


def _keep(context: Context) -> int:
    return context.loaded.settings.retention.keep_last if context.loaded else 0


async def _starred(context: Context, trigger: str) -> list[Plain]:
    documents = {int(one.name): one.value for one in await context.store.documents(STARRED)}
    wanted = [id for id, star in documents.items() if star.get("trigger", "") in ("", trigger)]
    rows = []
    for event in await _of_trigger(context, wanted, trigger):
        star = documents[event.id]
        about = {"by": star.get("by", ""), "at": star.get("at"), "note": star.get("note", "")}
        rows.append(await _row(context, event, trigger) | {"star": about})
    return rows


async def _of_trigger(context: Context, ids: Sequence[int], trigger: str) -> list[Recorded]:
    """These events, newest first, if the trigger has decided about them."""
    names = await context.names()
    events = heard(context, await context.store.events_by_id(sorted(ids, reverse=True)))
    return [one for one in events if any(names.get(v.trigger, v.trigger) == trigger for v in one.verdicts)]


async def _row(context: Context, event: Recorded, trigger: str) -> Plain:
    """The event without its data and without what other triggers decided."""
    row = event_row(event, await context.names(), context.feed_label(event.feed))
    del row["data"]
    return row | {"verdicts": [verdict for verdict in row["verdicts"] if verdict["trigger"] == trigger]}
