"""Where a ticket stands for us, as one short text: the state of its event, so that each change is noticed once.

A ticket that is `ready` starts its pipeline. What else changes about a ticket (a comment, another label, its title)
leaves its standing as it is, and starts nothing.
"""

from __future__ import annotations

import msgspec

from harken.ticket import Ticket
from harken.tickets.lifecycle_labels import Lifecycle, LifecycleLabels
from harken.tickets.routing import Routes, route

__all__ = ["Scope", "Standing", "standing"]

CLAIMABLE = frozenset({None, Lifecycle.PENDING})
ACTIVE = frozenset({Lifecycle.ENQUEUED, Lifecycle.IN_PROGRESS, Lifecycle.WAITING})


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
    """Say where the ticket stands: `closed`, `claimed:done`, `withdrawn:label`, `status:Review`, `unrouted` or
    `ready:fix`. Withdrawn: it has a run that is not over, and a person took away what started it."""
    if ticket.closed:
        return Standing(state="closed", reason="the ticket is closed")
    lifecycle = scope.lifecycle.state_of(ticket.labels)
    chosen = route(ticket.labels, scope.routes, scope.lifecycle)
    not_open = _not_among(ticket.status, scope.open_states, "open_states")
    if lifecycle in ACTIVE and (not_open or not chosen.pipeline):
        return Standing(state=f"withdrawn:{'status' if not_open else 'label'}", reason=not_open or chosen.reason)
    if lifecycle not in CLAIMABLE:
        # the run itself may have moved it out of trigger_statuses
        return Standing(state=f"claimed:{lifecycle}", reason=f"its label {lifecycle} says that it has a run")
    if refused := not_open or _not_among(ticket.status, scope.trigger_statuses, "trigger_statuses"):
        return Standing(state=f"status:{ticket.status}", reason=refused)
    if not chosen.pipeline:
        return Standing(state="unrouted", reason=chosen.reason)
    if not (chosen.label or scope.trigger_statuses or lifecycle):
        # a default pipeline for whatever changes would be started by strangers, and by hundreds of old tickets
        wanted = scope.lifecycle.label(Lifecycle.PENDING)
        return Standing(
            state="unrouted", reason=f"without pipeline_from_label only the label {wanted} starts something"
        )
    # the label and not the pipeline: another label that means the same pipeline is a new wish of a person
    return Standing(state=f"ready:{chosen.label.casefold()}", pipeline=chosen.pipeline, label=chosen.label)


def _not_among(status: str, wanted: frozenset[str], name: str) -> str:
    return f"{status} is not one of {name}" if wanted and status.casefold() not in wanted else ""
