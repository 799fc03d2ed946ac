"""One event for many triggers, and the search for our own secrets in it, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import apsw
import msgspec

from bench.engine import NOTHING, Engine, answer, definitions, engine
from bench.sample_pages import Book, reached
from harken.app.redacting_services import RedactingPush
from harken.event import Event
from harken.feed import Feed, Trigger
from harken.schedule import Every
from harken.source import Request
from harken.store import Definitions

__all__ = ["Fanout", "Spent", "spend"]

TEXT = "Backup of the second cluster was late again, and nobody was told about it until the morning. " * 4
WARM = 3
SEARCHES = 2_000


class Fanout(msgspec.Struct, frozen=True, kw_only=True):
    """So many triggers listen to one feed, which shows events that none of them wants, and then some that all want."""

    triggers: int
    declined: int
    wanted: int
    secrets: int
    directory: str


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds of an event that no trigger wants, and its bytes; CPU seconds of an event that all want, until all
    its runs are settled: of the first one, whose runs are claimed, and of others, whose runs the commit hands over; and
    the seconds in which an event is searched for our own secrets."""

    declined: float
    bytes: float
    claimed: float
    handed: float
    search: float


async def spend(asked: Fanout) -> Spent:
    path = Path(asked.directory) / "fanout.db"
    feed = Feed(name="f", kind="bench", integration="bench", schedule=Every(seconds=3600))
    book = Book()
    async with engine(path, lambda feed: book) as running:
        await running.intake.start(_definitions(feed, asked.triggers))
        await _show(running, book, [], 0)
        await _show(running, book, [_event(f"warm-{n}", TEXT) for n in range(WARM)], 0)
        declined = await _show(running, book, [_event(f"no-{n}", TEXT) for n in range(asked.declined)], 0)
        kept = _kept(path)
        all_words = " ".join(f"word {number}." for number in range(asked.triggers))
        claimed = await _show(running, book, [_event("first", all_words)], asked.triggers)
        shown = [_event(f"yes-{n}", all_words) for n in range(asked.wanted)]
        handed = await _show(running, book, shown, asked.triggers)
    search = await _search(asked.secrets)
    return Spent(declined=declined, bytes=kept, claimed=claimed, handed=handed, search=search)


def _definitions(feed: Feed, count: int) -> Definitions:
    triggers = [
        Trigger(
            name=f"team-{number:04}",
            feed=feed.name,
            workflow=NOTHING.name,
            workflow_rev=NOTHING.rev,
            condition=f'event.text.contains("word {number}.")',
            flood_limit=0,
        )
        for number in range(count)
    ]
    return msgspec.structs.replace(definitions([feed]), triggers=triggers)


def _event(name: str, text: str) -> Event:
    return Event(subject=name, type="bench.item", data={"id": name, "text": text}, occurred_at=datetime.now(UTC))


async def _show(running: Engine, book: Book, events: Sequence[Event], runs: int) -> float:
    """Return the CPU seconds per event, until all runs are settled. Each event is a page, as a webhook is."""
    book.fill([[event] for event in events])
    target = running.worker.done + runs * len(events)
    used = time.process_time()
    await running.intake.tick("f")
    await reached(lambda: running.worker.done, target)
    return (time.process_time() - used) / max(1, len(events))


def _kept(path: Path) -> float:
    """The bytes of an event with its verdicts."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as file:
        kept = file.execute("SELECT avg(length(verdicts) + length(data)) FROM events WHERE id > ?", (WARM,)).get
    return float(kept)


async def _search(secrets: int) -> float:
    class Received:
        async def receive(self, request: Request) -> list[Event]:
            return [Event(subject="s", key="k", type="t", data={}, raw=request.body)]

    known = frozenset(f"whsec_{number:x}_{number * 7919 % 100_003:x}_of_a_webhook" for number in range(secrets))
    push = RedactingPush(Received(), lambda: known)
    body = msgspec.json.encode({"id": "s", "text": TEXT})
    request = Request(headers={}, body=body, received_at=datetime.now(UTC))
    await push.receive(request)
    began = time.perf_counter()
    for _ in range(SEARCHES):
        await push.receive(request)
    return (time.perf_counter() - began) / SEARCHES


if __name__ == "__main__":
    answer(Fanout, spend)
