"""Whether the webhooks of a tracker arrive, as the polls and sweeps of all replicas have measured it."""

from __future__ import annotations

import msgspec

from harken.tickets import TrackerSettings
from harken.tickets.webhook_loss import LEAST_SHARE, Deliveries

__all__ = ["WebhookHealth", "webhook_health", "webhook_path"]


class WebhookHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Webhooks to `path` `delivered` so many changes in the last hours; those that are `lost` only polls have found."""

    path: str
    delivered: int = 0
    lost: int = 0
    problem: str = ""
    fix: str = ""


def webhook_path(settings: TrackerSettings) -> str:
    """Where the webhooks of the tracker come in."""
    return f"/webhooks/{settings.kind}/{settings.name}"


def webhook_health(settings: TrackerSettings, counted: Deliveries | None) -> WebhookHealth | None:
    """What is known of the tracker's webhooks; None if it takes none."""
    if not settings.webhook:
        return None
    path = webhook_path(settings)
    if counted is None:
        return WebhookHealth(path=path)
    delivered, lost = counted.total
    if counted.share >= LEAST_SHARE:
        return WebhookHealth(path=path, delivered=delivered, lost=lost)
    return WebhookHealth(
        path=path,
        delivered=delivered,
        lost=lost,
        problem=f"no webhook told {lost} of {delivered + lost} changes of tickets of {settings.name}",
        fix=f"Look at the deliveries of the webhook to {path} at {settings.kind}: it may be missing, switched off, or "
        "signed with another secret",
    )
