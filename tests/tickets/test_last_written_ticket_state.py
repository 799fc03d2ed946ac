"""The memory of a ticket, which several parts of a fleet change."""

from __future__ import annotations

from msgspec.structs import replace

from harken.testing import HandClock
from harken.tickets import Lifecycle, TicketMemories, TicketMemory
from tests.tickets.projecting import RunBook


async def test_what_another_process_writes_at_the_same_time_is_not_lost() -> None:
    store = RunBook(HandClock())
    memories = TicketMemories(store, "shop")
    await memories.put("7", TicketMemory(project="web", shown=Lifecycle.DONE))
    others = [TicketMemory(project="web", shown=Lifecycle.DONE, comment="c1")]

    def confirm(known: TicketMemory | None) -> TicketMemory:
        assert known is not None
        if others:
            key = ("ticket", "shop/7")
            before = store.stored[key]
            store.stored[key] = replace(
                before, value={"project": "web", "shown": "done", "comment": "c1"}, revision=before.revision + 1
            )
            others.clear()
        return replace(known, confirmed=True)

    after = await memories.update("7", confirm)
    assert after == await memories.get("7")
    assert (after.confirmed, after.comment) == (True, "c1")


async def test_a_change_that_changes_nothing_is_not_written() -> None:
    store = RunBook(HandClock())
    memories = TicketMemories(store, "shop")
    made = await memories.update("7", lambda known: known or TicketMemory(project="web"))
    await memories.update("7", lambda known: known or TicketMemory(project="web"))
    assert made == TicketMemory(project="web")
    assert store.stored["ticket", "shop/7"].revision == 1
