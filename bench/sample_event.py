"""What a measured event holds: the same in webhooks and in pages, so that their figures can be compared."""

from __future__ import annotations

from typing import Any

__all__ = ["sample"]


def sample(name: str, text: str) -> dict[str, Any]:
    return {
        "id": name,
        "severity": "high",
        "service": {"name": "checkout", "team": "payments", "region": "eu-central-1"},
        "title": "error rate above its threshold",
        "count": 17,
        "labels": ["production", "customer-facing"],
        "text": text,
    }
