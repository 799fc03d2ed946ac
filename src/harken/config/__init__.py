"""Files to typed values: every error with its position, and a plan for every change."""

from __future__ import annotations

from harken.config.findings import CODES, Finding
from harken.config.loaded import Account, Loaded
from harken.config.loader import load
from harken.config.reload_plan import Plan, carry_over, inherit_cursors, plan
from harken.config.settings import Settings
from harken.config.sources import credential_of, source_for
from harken.durations import format_duration, parse_duration

__all__ = [
    "CODES",
    "Account",
    "Finding",
    "Loaded",
    "Plan",
    "Settings",
    "carry_over",
    "credential_of",
    "format_duration",
    "inherit_cursors",
    "load",
    "parse_duration",
    "plan",
    "source_for",
]
