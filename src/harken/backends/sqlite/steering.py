"""What people do to triggers and feeds: pause, resume, reset, wake."""

from __future__ import annotations

from harken.backends.sqlite import queue
from harken.backends.sqlite.standing import state, trigger_states
from harken.backends.sqlite.transaction import Books
from harken.feed import FeedState, TriggerState

__all__ = ["pause", "reset", "resume", "wake"]


def pause(books: Books, trigger: str, reason: str) -> TriggerState:
    found = books.trigger_named(trigger)
    books.execute("UPDATE triggers SET paused=? WHERE id=?", (books.shut(reason or "paused"), found.id))
    _new_revision(books, found.feed)
    return trigger_states(books, "id=?", (found.id,))[0]


def resume(books: Books, trigger: str) -> TriggerState:
    found = books.trigger_named(trigger)
    books.execute("UPDATE triggers SET paused='' WHERE id=?", (found.id,))
    queue.let_go(books, found, "paused", books.now())
    _clear_errors(books, found.feed)
    return trigger_states(books, "id=?", (found.id,))[0]


def reset(books: Books, trigger: str, cursor: bool) -> TriggerState:
    found = books.trigger_named(trigger)
    now = books.now()
    books.execute("UPDATE triggers SET paused='' WHERE id=?", (found.id,))
    queue.let_go(books, found, "paused", now)
    if cursor:
        books.execute(
            """UPDATE triggers SET epoch=epoch+1, epoch_event=?, start_line=?, reads_from=?, reset_at=?, backfilling=0
            WHERE id=?""",
            (books.next_event, now, now, now, found.id),
        )
        books.execute("UPDATE feeds SET cursor=NULL, watermark=NULL WHERE name=?", (found.feed,))
        _wipe_memory(books, found.feed)
    _clear_errors(books, found.feed)
    return trigger_states(books, "id=?", (found.id,))[0]


def _wipe_memory(books: Books, name: str) -> None:
    feed = books.feed(name)
    listening = books.value("SELECT count(*) FROM triggers WHERE feed=? AND removed_at IS NULL", (name,))
    if feed.identity == "transition" and listening > 1:
        # keys count the changes of a subject: beginning again would give the others' next change an old key
        return
    books.execute("DELETE FROM memory WHERE feed=?", (feed.id,))
    books.execute("UPDATE feeds SET baselined=0 WHERE id=?", (feed.id,))


def _clear_errors(books: Books, feed: str) -> None:
    books.execute("UPDATE feeds SET health=NULL, next_due=? WHERE name=?", (books.now(), feed))
    _new_revision(books, feed)


def _new_revision(books: Books, feed: str) -> None:
    books.execute("UPDATE feeds SET revision=revision+1 WHERE name=?", (feed,))
    books.feed_changed(feed)


def wake(books: Books, feed: str) -> FeedState:
    books.execute("UPDATE feeds SET next_due=? WHERE name=?", (books.now(), feed))
    return state(books, feed)
