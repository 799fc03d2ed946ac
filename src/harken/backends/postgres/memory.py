"""What a feed remembers: noted with the events of a page, recalled before the next, forgotten when it is absent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from harken.backends.codec import micros
from harken.backends.postgres.entering import Entered, enter
from harken.backends.postgres.statements import Spread
from harken.backends.postgres.transaction import Books, Withdrawn, check_lease
from harken.event import Known
from harken.store import Entry, Stale

__all__ = ["ABSENT", "forget", "recall", "remember"]

ABSENT = "\0absent"
"""The state of a subject that its source no longer lists."""

ROWS = Spread(mid="bytea", state="bytea", seq="bigint", event="bigint", expect="bigint")
NOTE = """INSERT INTO memory (feed, mid, state, seq, event, first_seen, last_seen)
SELECT $1, u.mid, u.state, u.seq, u.event, $2, $2 FROM ({}) u ON CONFLICT DO NOTHING RETURNING mid"""

MOVE = """UPDATE memory m SET state=u.state, absent=false, seq=u.seq, event=u.event, last_seen=$2
FROM ({}) u WHERE m.feed=$1 AND m.mid=u.mid AND m.seq=u.expect RETURNING m.mid"""


class Sight(NamedTuple):
    """A subject with its new state, at this place of the page."""

    place: int
    entry: Entry
    mid: bytes
    event_id: int


async def remember(books: Books, feed: Entered, entries: Sequence[Entry], ids: Sequence[int]) -> dict[int, int]:
    """Note the new states. For entries that are known already: the id of the first event, by place.

    Raise Withdrawn when somebody else moved a subject to another state meanwhile.
    """
    firsts: dict[int, int] = {}
    for sights in _rounds(books, entries, ids):
        new = await _written(books, NOTE, feed, [sight for sight in sights if sight.entry.expect == 0])
        new |= await _written(books, MOVE, feed, [sight for sight in sights if sight.entry.expect != 0])
        known = [sight for sight in sights if sight.mid not in new]
        if known:
            firsts.update(await _repeated(books, feed, known))
    return firsts


def _rounds(books: Books, entries: Sequence[Entry], ids: Sequence[int]) -> list[list[Sight]]:
    """Each subject once in a round: a page may show one there and back again."""
    rounds: list[list[Sight]] = []
    seen: dict[bytes, int] = {}
    for place, entry in enumerate(entries):
        if entry.memory_id and not entry.again:
            mid = books.seal.name(entry.memory_id)
            turn = seen[mid] = seen.get(mid, -1) + 1
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append(Sight(place, entry, mid, ids[place]))
    for sights in rounds:
        # replicas that note the same subjects meet in the same order, and so do not wait for each other in a circle
        sights.sort(key=lambda sight: sight.mid)
    return rounds


async def _written(books: Books, sql: str, feed: Entered, sights: Sequence[Sight]) -> set[bytes]:
    """Those for which the statement had something to do."""
    if not sights:
        return set()
    rows = [
        (
            sight.mid,
            None if sight.entry.event.state is None else books.shut(sight.entry.event.state),
            sight.entry.seq,
            sight.event_id,
            sight.entry.expect,
        )
        for sight in sights
    ]
    text, values = ROWS.of(rows, fixed=2)
    return {row[0] for row in await books.rows(sql.format(text), feed.id, books.now, *values)}


async def _repeated(books: Books, feed: Entered, sights: Sequence[Sight]) -> dict[int, int]:
    sql = "SELECT mid, state, event FROM memory WHERE feed=$1 AND mid=ANY($2::bytea[])"
    rows = await books.rows(sql, feed.id, [sight.mid for sight in sights])
    known = {row[0]: (None if row[1] is None else books.text(row[1]), row[2]) for row in rows}
    firsts: dict[int, int] = {}
    for sight in sights:
        found = known.get(sight.mid)
        anyway = sight.entry.expect == 0 and feed.identity != "transition"
        if found is None or not (anyway or found[0] == sight.entry.event.state):
            raise Withdrawn(Stale(feed.revision))
        firsts[sight.place] = found[1]
    return firsts


async def recall(books: Books, feed: str, memory_ids: Sequence[str]) -> dict[str, Known]:
    by_mid = {books.seal.name(name): name for name in memory_ids}
    rows = await books.rows(
        """SELECT mid, state, seq, absent FROM memory
        WHERE feed=(SELECT id FROM feeds WHERE name=$1) AND mid=ANY($2::bytea[])""",
        feed,
        list(by_mid),
    )
    known: dict[str, Known] = {}
    for mid, sealed, seq, absent in rows:
        state = ABSENT if absent else None if sealed is None else books.text(sealed)
        known[by_mid[mid]] = Known(state, seq)
    return known


async def forget(books: Books, feed_name: str, token: int, listed: Sequence[str], before: datetime) -> int:
    feed = await enter(books, feed_name, leased=True)
    check_lease(token, feed.token, feed.until, books.now)
    mids = [books.seal.name(name) for name in listed]
    seen = "UPDATE memory SET last_seen=$1 WHERE feed=$2 AND mid=ANY($3::bytea[])"
    await books.do(seen, books.now, feed.id, mids)
    if feed.identity == "transition":
        # only the state goes: the count stays, so that coming back is a change with a key of its own
        gone = "UPDATE memory SET state=NULL, absent=true WHERE feed=$1 AND last_seen<$2 AND NOT absent"
    else:
        gone = "DELETE FROM memory WHERE feed=$1 AND last_seen<$2"
    return await books.do(gone, feed.id, micros(before))
