"""Rebuilds the memory of tickets from what is on them, after the store was lost: nothing that was done runs again.

Two things count: receipts in comments of our own account, signed with our key, and lifecycle labels that our own
account put on. A label that somebody else put on is a wish, not a memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import RetryLater
from harken.runs import FINAL
from harken.ticket import Comment, Ticket
from harken.tickets.comment_marks import Receipt, is_sticky, receipts_in
from harken.tickets.last_written_ticket_state import TicketMemory
from harken.tickets.lifecycle_labels import Lifecycle
from harken.tickets.project_of_ticket import resolve
from harken.tickets.ticket_writer import Target
from harken.tickets.write_pace import swap_in_turn

__all__ = ["AdoptionResult", "adopt", "status_from"]

log = structlog.get_logger("harken.tickets")

UNKNOWN_RUN = "adopted"
"""Stands for the run of a ticket that only a label of ours tells of."""

_STATUS = {Lifecycle.DONE: "done", Lifecycle.FAILED: "failed"}


class AdoptionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Tickets (what people call them) by what was found: `finished` ones are remembered and not run again.

    `interrupted` had a run that was not over, and can be claimed again. `foreign` have a label that is not ours.
    `waits`: the platform wants us to wait so many seconds before the rest is adopted, for this `reason`.
    """

    finished: tuple[str, ...] = ()
    interrupted: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    waits: float | None = None
    reason: str = ""

    def __add__(self, other: AdoptionResult) -> AdoptionResult:
        return AdoptionResult(
            finished=self.finished + other.finished,
            interrupted=self.interrupted + other.interrupted,
            foreign=self.foreign + other.foreign,
            waits=other.waits,
            reason=other.reason,
        )


async def adopt(targets: Sequence[Target], key: bytes, clock: Clock) -> AdoptionResult:
    """Adopt the tickets of one location; `targets` are the projects there, in the order of the configuration.

    Called again after a wait, it goes on with those that are not adopted yet."""
    adopted = AdoptionResult()
    try:
        own = (await targets[0].tracker.own_account()).id
        async for ticket in _list_labelled(targets[0]):
            name = resolve(ticket, [target.project.scope for target in targets]).project
            target = next((target for target in targets if target.project.name == name), None)
            if target is not None:
                adopted += await _adopt_ticket(target, ticket, own, key, clock)
    except RetryLater as error:
        if error.after is None:
            raise
        adopted += AdoptionResult(waits=error.after, reason=error.message)
    return adopted


def status_from(shown: Lifecycle, receipt: Receipt | None) -> str:
    """How the run ended, by the label and the receipt; empty if it had not."""
    if shown in _STATUS:
        return _STATUS[shown]
    # the label was changed after the end, or the swap was cut short
    return receipt.state if receipt is not None and receipt.state in FINAL - {"cancelled"} else ""


async def _adopt_ticket(target: Target, ticket: Ticket, own: str, key: bytes, clock: Clock) -> AdoptionResult:
    labels = target.settings.lifecycle
    shown = labels.state_of(ticket.labels)
    known = await target.memories.get(ticket.id)
    if shown is None or shown is Lifecycle.PENDING or (known is not None and known.run):
        return AdoptionResult()
    sticky, receipt = await _find_receipt(target, ticket, own, key)
    if receipt is None and not await _is_label_ours(target, ticket, shown, own):
        return AdoptionResult(foreign=(ticket.ref,))
    status = status_from(shown, receipt)
    memory = TicketMemory(
        project=target.project.name,
        run=receipt.run if receipt else UNKNOWN_RUN,
        status=status,
        shown=shown,
        wrote_at=ticket.updated_at or clock.now(),
        version=ticket.version,
        confirmed=True,
        comment=sticky.id if sticky else "",
        commented_at=sticky.created_at if sticky else None,
        settled=f"{receipt.run}:{status}:0" if receipt and status else "",
    )
    if not status:
        remove = [label for label in ticket.labels if not labels.others([label])]
        pending = labels.label(Lifecycle.PENDING)
        after = await swap_in_turn(target.pace, target.tracker, ticket, [pending], remove)
        memory = msgspec.structs.replace(
            memory, run="", shown=Lifecycle.PENDING, version=after.version, wrote_at=clock.now(), confirmed=False
        )
    await target.memories.update(ticket.id, lambda before: memory)
    log.info("ticket.adopted", tracker=target.settings.name, ticket=ticket.ref, status=status or "interrupted")
    return AdoptionResult(finished=(ticket.ref,)) if status else AdoptionResult(interrupted=(ticket.ref,))


async def _list_labelled(target: Target) -> AsyncIterator[Ticket]:
    """Every ticket with a label of ours, closed ones too, each once."""
    labels, page, seen = [target.settings.lifecycle.label(state) for state in Lifecycle], None, set[str]()
    while True:
        found = await target.tracker.list_labelled(labels, closed=True, page=page)
        for ticket in found.tickets:
            if ticket.id not in seen:
                seen.add(ticket.id)
                yield ticket
        page = found.next
        if page is None:
            return


async def _find_receipt(target: Target, ticket: Ticket, own: str, key: bytes) -> tuple[Comment | None, Receipt | None]:
    """Our sticky comment, and the newest receipt that is really ours."""
    comments = [one for one in await target.tracker.comments(ticket) if one.author is not None and one.author.id == own]
    sticky = next((one for one in reversed(comments) if is_sticky(one)), None)
    for comment in reversed(comments):
        for receipt in receipts_in(comment.text, key, target.settings.kind, ticket.id):
            return comment, receipt
    return sticky, None


async def _is_label_ours(target: Target, ticket: Ticket, shown: Lifecycle, own: str) -> bool:
    wanted = target.settings.lifecycle.label(shown).casefold()
    changes = await target.tracker.label_history(ticket) or ()
    added = [change for change in changes if change.added and change.label.casefold() == wanted]
    return bool(added) and added[-1].actor is not None and added[-1].actor.id == own
