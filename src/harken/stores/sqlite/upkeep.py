"""Keeping the file small, sound and copied."""

from __future__ import annotations

from harken.stores.sqlite.books import Books
from harken.stores.sqlite.queue import READY, RUNNING

__all__ = ["bury_the_dead", "check", "reap", "retain"]

SLICE = 100
"""Rows deleted at a time: a few milliseconds, so that nobody waits for the cleaning."""


def reap(books: Books) -> int:
    """Make runs ready whose claim ran out."""
    books.execute(
        "UPDATE runs SET state=?, lease_until=NULL, holder=NULL WHERE state=? AND lease_until<?",
        (READY, RUNNING, books.now()),
    )
    return books.connection.changes()


def bury_the_dead(books: Books) -> None:
    """We have just locked the file, so whoever held a claim or lease is gone: don't wait for them to run out."""
    books.execute("UPDATE runs SET state=?, lease_until=NULL, holder=NULL WHERE state=?", (READY, RUNNING))
    books.execute("UPDATE leases SET until=0")
    books.lease_changed()


def retain(books: Books, events: float, ticks: float, runs: float, pushed: float) -> int:
    now = books.now()
    gone = 0
    books.keep_counting()
    old_runs = f"SELECT seq FROM runs WHERE state>=6 AND finished_at<? ORDER BY seq LIMIT {SLICE}"
    seqs = [row[0] for row in books.execute(old_runs, (now - round(runs * 1e6),)).fetchall()]
    for seq in seqs:
        books.execute("DELETE FROM journal WHERE run=?", (seq,))
        books.execute("DELETE FROM run_events WHERE run=?", (seq,))
        books.execute("DELETE FROM runs WHERE seq=?", (seq,))
    gone += len(seqs)
    gone += _delete(books, "ticks", "ended_at<?", now - round(ticks * 1e6))
    # an event stays while a run that is not over needs it
    needed = """recorded_at<? AND id NOT IN (SELECT event FROM runs WHERE state<6 AND event IS NOT NULL)
        AND id NOT IN (SELECT event FROM run_events WHERE run IN (SELECT seq FROM runs WHERE state<6))"""
    gone += _delete(books, "events", needed, now - round(events * 1e6))
    gone += _delete(books, "buried", "at<?", now - round(events * 1e6))
    books.execute(
        f"""DELETE FROM memory WHERE (feed, mid) IN (SELECT m.feed, m.mid FROM memory m JOIN feeds f ON f.id=m.feed
        WHERE f.pushed AND m.last_seen<? LIMIT {SLICE})""",
        (now - round(pushed * 1e6),),
    )
    gone += books.connection.changes()
    books.execute(
        f"""DELETE FROM memory WHERE (feed, mid) IN
        (SELECT feed, mid FROM memory WHERE absent AND last_seen<? LIMIT {SLICE})""",
        (now - round(runs * 1e6),),
    )
    return gone + books.connection.changes()


def _delete(books: Books, table: str, where: str, before: int) -> int:
    books.execute(
        f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE {where} ORDER BY id LIMIT {SLICE})", (before,)
    )
    return books.connection.changes()


CHECKS = {
    "{} runs refer to an event that is gone": """SELECT count(*) FROM runs WHERE state<6 AND event IS NOT NULL
        AND event NOT IN (SELECT id FROM events)""",
    "{} slots are held by a run that is over": """SELECT count(*) FROM slots WHERE run NOT IN
        (SELECT seq FROM runs WHERE state IN (2, 4, 5))""",
    "{} runs are blocked behind a slot that nobody holds": """SELECT count(*) FROM runs WHERE state=3
        AND slot NOT IN (SELECT key FROM slots)""",
    "{} runs belong to a trigger that does not exist": """SELECT count(*) FROM runs WHERE trigger<>0
        AND trigger NOT IN (SELECT id FROM triggers)""",
    "{} events belong to a feed that does not exist": """SELECT count(*) FROM events
        WHERE feed NOT IN (SELECT id FROM feeds)""",
    "{} open runs pin a workflow revision that is gone": """SELECT count(*) FROM runs WHERE state<6 AND workflow_rev
        NOT IN (SELECT name FROM documents WHERE kind='workflow')""",
    "{} journal rows belong to no run": "SELECT count(*) FROM journal WHERE run NOT IN (SELECT seq FROM runs)",
}


def check(books: Books) -> list[str]:
    found = [row[0] for row in books.execute("PRAGMA integrity_check") if row[0] != "ok"]
    for sentence, sql in CHECKS.items():
        count = books.value(sql)
        if count:
            found.append(sentence.format(count))
    return found
