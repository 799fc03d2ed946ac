"""What people do to triggers and feeds: pause, resume, reset, wake."""

from __future__ import annotations

from harken.backends.postgres.holding import let_go
from harken.backends.postgres.standing import state, trigger_states
from harken.backends.postgres.transaction import Books
from harken.feed import FeedState, TriggerState

__all__ = ["pause", "reset", "resume", "wake"]


async def pause(books: Books, trigger: str, reason: str) -> TriggerState:
    found = await books.trigger_named(trigger)
    await _lock(books, found.feed)
    await books.do("UPDATE triggers SET paused=$1 WHERE id=$2", books.shut(reason or "paused"), found.id)
    await _new_revision(books, found.feed)
    return (await trigger_states(books, "t.id=$4", found.id))[0]


async def resume(books: Books, trigger: str) -> TriggerState:
    found = await books.trigger_named(trigger)
    await _lock(books, found.feed)
    await _clear(books, found.id, found.feed)
    return (await trigger_states(books, "t.id=$4", found.id))[0]


async def reset(books: Books, trigger: str, cursor: bool) -> TriggerState:
    found = await books.trigger_named(trigger)
    await _lock(books, found.feed)
    if cursor:
        await books.do(
            """UPDATE triggers SET epoch=epoch+1, epoch_event=nextval('event_ids'), start_line=$1, reads_from=$1,
            reset_at=$1, backfilling=false WHERE id=$2""",
            books.now,
            found.id,
        )
        await books.do("UPDATE feeds SET cursor=NULL, watermark=NULL WHERE name=$1", found.feed)
        await _wipe_memory(books, found.feed)
    await _clear(books, found.id, found.feed)
    return (await trigger_states(books, "t.id=$4", found.id))[0]


async def _lock(books: Books, feed: str) -> None:
    """Wait for whoever writes to the feed under its revision of now."""
    await books.value("SELECT 1 FROM feeds WHERE name=$1 FOR UPDATE", feed)


async def _clear(books: Books, trigger: int, feed: str) -> None:
    """Nothing is paused and nothing failed; what the pause held goes."""
    await books.do("UPDATE triggers SET paused='' WHERE id=$1", trigger)
    await let_go(books, trigger, "paused")
    await books.do("UPDATE feeds SET health=NULL, next_due=$1 WHERE name=$2", books.now, feed)
    await _new_revision(books, feed)


async def _wipe_memory(books: Books, name: str) -> None:
    id, identity = await books.row("SELECT id, identity FROM feeds WHERE name=$1", name)
    listening = await books.value("SELECT count(*) FROM triggers WHERE feed=$1 AND removed_at IS NULL", name)
    if identity == "transition" and listening > 1:
        # keys count the changes of a subject: beginning again would give the others' next change an old key
        return
    await books.do("DELETE FROM memory WHERE feed=$1", id)
    await books.do("UPDATE feeds SET baselined=false WHERE id=$1", id)


async def _new_revision(books: Books, feed: str) -> None:
    await books.do("UPDATE feeds SET revision=revision+1 WHERE name=$1", feed)


async def wake(books: Books, feed: str) -> FeedState:
    await books.do("UPDATE feeds SET next_due=$1 WHERE name=$2", books.now, feed)
    return await state(books, feed)
