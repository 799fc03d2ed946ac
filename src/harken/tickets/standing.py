"""Where a ticket stands for us, as one short text: the state of its event, so that each change is noticed once.

A ticket that is `ready` starts its pipeline. What else changes about a ticket (a comment, another label, its title)
leaves its standing as it is, and starts nothing.
"""

from __future__ import annotations

import msgspec

from harken.ticket import Ticket
from harken.tickets.lifecycle import Lifecycle, LifecycleLabels
from harken.tickets.routing import Routes, route

__all__ = ["Scope", "Standing", "standing"]

CLAIMABLE = frozenset({None, Lifecycle.PENDING})


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What of a project decides about a ticket. Statuses are compared whole: `Done` is not `Not Done`.

    An empty `open_states` means what the platform calls open; an empty `trigger_statuses` means any of them.
    """

    routes: Routes
    lifecycle: LifecycleLabels = LifecycleLabels()
    open_states: frozenset[str] = frozenset()
    trigger_statuses: frozenset[str] = frozenset()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is what is compared and stored. `pipeline` is set if the ticket is ready, else `reason` says why not."""

    state: str
    pipeline: str = ""
    label: str = ""
    reason: str = ""

    @property
    def ready(self) -> bool:
        return bool(self.pipeline)


def standing(ticket: Ticket, scope: Scope) -> Standing:
    """Say where the ticket stands: `closed`, `claimed:done`, `status:Review`, `unrouted`, or `ready:fix`."""
    if ticket.closed:
        return Standing(state="closed", reason="the ticket is closed")
    lifecycle = scope.lifecycle.state_of(ticket.labels)
    if lifecycle not in CLAIMABLE:
        return Standing(state=f"claimed:{lifecycle}", reason=f"its label {lifecycle} says that it has a run")
    status = ticket.status.casefold()
    if scope.open_states and status not in scope.open_states:
        return Standing(state=f"status:{ticket.status}", reason=f"{ticket.status} is not one of open_states")
    if scope.trigger_statuses and status not in scope.trigger_statuses:
        return Standing(state=f"status:{ticket.status}", reason=f"{ticket.status} is not one of trigger_statuses")
    chosen = route(ticket.labels, scope.routes, scope.lifecycle)
    if not chosen.pipeline:
        return Standing(state="unrouted", reason=chosen.reason)
    # the label and not the pipeline: another label that means the same pipeline is a new wish of a person
    return Standing(state=f"ready:{chosen.label.casefold()}", pipeline=chosen.pipeline, label=chosen.label)
