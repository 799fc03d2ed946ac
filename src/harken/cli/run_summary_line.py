"""One line for one run, as `harken start`, `harken runs tail` and `harken runs list --follow` print it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from harken.cli.output import clean, clock, key_and_title, took

__all__ = ["run_line", "write_run_line"]


def run_line(row: Mapping[str, Any]) -> str:
    """`2026-03-01 10:00:00 CET  oncall  INC-1 "Disk full"  done  0.3 s`, and why if it did not go well."""
    if "left_out" in row:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in row["left_out"].items())
        return f"{clock(row['at'])}  … and more: {counts}. See: harken runs list"
    at = row.get("at") or row.get("finished_at") or row["created_at"]
    name = row["trigger"] or row["workflow"] or "-"
    why = row["error"] or row.get("hold") or row.get("waiting_for")
    parts = [clock(at), name, _subject(row), row["outcome"], took(row["seconds"]), why]
    return clean("  ".join(str(part) for part in parts if part))


def _subject(row: Mapping[str, Any]) -> str:
    keys = row["event_keys"]
    if not keys:
        return "(by hand)"
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return f"{key_and_title(keys[0], row.get('title') or '')}{more}"


def write_run_line(row: Mapping[str, Any]) -> None:
    """Write the line past Python's buffer: its lock must be free when the process ends while nobody reads."""
    os.write(sys.stdout.fileno(), f"{run_line(row)}\n".encode())
