"""The rules by which a ticket starts a pipeline and carries its state: pure functions over values, no requests."""

from harken.tickets.lifecycle import Lifecycle, LifecycleLabels
from harken.tickets.projection import ENQUEUED_AFTER, LATEST_REPAIRS, desired_state, repairs_allowed
from harken.tickets.resolution import ProjectScope, Resolution, resolve
from harken.tickets.routing import Route, Routes, route
from harken.tickets.standing import Scope, Standing, standing
from harken.tickets.trust import Trust, Trusted, judge

__all__ = [
    "ENQUEUED_AFTER",
    "LATEST_REPAIRS",
    "Lifecycle",
    "LifecycleLabels",
    "ProjectScope",
    "Resolution",
    "Route",
    "Routes",
    "Scope",
    "Standing",
    "Trust",
    "Trusted",
    "desired_state",
    "judge",
    "repairs_allowed",
    "resolve",
    "route",
    "standing",
]
