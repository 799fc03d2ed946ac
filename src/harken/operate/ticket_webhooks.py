"""Whether the webhooks of a tracker arrive, as its polls and sweeps have measured it."""

from __future__ import annotations

import msgspec

from harken.feed import FeedState
from harken.kit import load_cursor
from harken.tickets import TrackerSettings
from harken.tickets.cycle import TicketCursor
from harken.tickets.deliveries import LEAST_SHARE

__all__ = ["WebhookHealth", "webhook_health"]


class WebhookHealth(msgspec.Struct, frozen=True, kw_only=True):
    """`heard` changes were told by webhooks to `path` in the last hours, `missed` ones were found by polls alone."""

    path: str
    heard: int = 0
    missed: int = 0
    problem: str = ""
    fix: str = ""


def webhook_health(settings: TrackerSettings, state: FeedState | None) -> WebhookHealth | None:
    """What is known of the tracker's webhooks; None if it takes none."""
    if not settings.webhook:
        return None
    path = f"/webhooks/{settings.kind}/{settings.name}"
    cursor = load_cursor(state.cursor, TicketCursor) if state is not None else None
    if cursor is None:
        return WebhookHealth(path=path)
    counted = cursor.deliveries
    heard, missed = counted.heard + counted.heard_before, counted.missed + counted.missed_before
    if counted.share >= LEAST_SHARE:
        return WebhookHealth(path=path, heard=heard, missed=missed)
    return WebhookHealth(
        path=path,
        heard=heard,
        missed=missed,
        problem=f"no webhook told {missed} of {heard + missed} changes of tickets of {settings.name}",
        fix=f"Look at the deliveries of the webhook to {path} at {settings.kind}: it may be missing, switched off, or "
        "signed with another secret",
    )
