"""How many webhooks of one path are taken: a bucket that fills evenly, and holds what a minute may bring."""

from __future__ import annotations

from math import ceil

__all__ = ["WebhookRate"]


class WebhookRate:
    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._left = float(per_minute)
        self._at = now

    def take(self, now: float) -> int:
        """Count a request; 0 if it may pass, else the seconds after which another one may."""
        per_second = self.per_minute / 60
        self._left = min(self.per_minute, self._left + max(0.0, now - self._at) * per_second)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0
        return max(1, ceil((1 - self._left) / per_second))
