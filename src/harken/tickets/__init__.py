"""How a ticket starts a pipeline and carries its state: pure rules over values, and what the engine does with them."""

from harken.tickets.comment_marks import is_ours, receipt_key
from harken.tickets.desired_ticket_label import ENQUEUED_AFTER, LATEST_REPAIRS, desired_state, repairs_allowed
from harken.tickets.labeller_trust import Trust, Trusted, judge
from harken.tickets.last_written_ticket_state import TicketMemories, TicketMemory
from harken.tickets.lifecycle_labels import Lifecycle, LifecycleLabels
from harken.tickets.project_of_ticket import ProjectScope, Resolution, resolve
from harken.tickets.projector import Projector
from harken.tickets.readiness import Scope, Standing, standing
from harken.tickets.recovery_after_store_loss import AdoptionResult
from harken.tickets.routing import Route, Routes, route
from harken.tickets.settings import ProjectSettings, TrackerSettings, feed_name, scope_of, tracker_of, trigger_name
from harken.tickets.tracker_feed_source import TicketSource
from harken.tickets.write_pace import WritePaces

__all__ = [
    "ENQUEUED_AFTER",
    "LATEST_REPAIRS",
    "AdoptionResult",
    "Lifecycle",
    "LifecycleLabels",
    "ProjectScope",
    "ProjectSettings",
    "Projector",
    "Resolution",
    "Route",
    "Routes",
    "Scope",
    "Standing",
    "TicketMemories",
    "TicketMemory",
    "TicketSource",
    "TrackerSettings",
    "Trust",
    "Trusted",
    "WritePaces",
    "desired_state",
    "feed_name",
    "is_ours",
    "judge",
    "receipt_key",
    "repairs_allowed",
    "resolve",
    "route",
    "scope_of",
    "standing",
    "tracker_of",
    "trigger_name",
]
