"""The states of a run as every store keeps them, and how its id is made."""

from __future__ import annotations

from typing import Any

from harken.backends.encryption import Seal
from harken.runs import Cancelled, Dead, Failed, Finished, RunOutcome

__all__ = [
    "BLOCKED",
    "CANCELLED",
    "DEAD",
    "DONE",
    "FAILED",
    "FINAL",
    "GATHERING",
    "HELD",
    "NEVER",
    "READY",
    "RUNNING",
    "STATES",
    "WAITING",
    "id_of",
    "last_words",
    "run_id_of",
]

GATHERING, HELD, READY, BLOCKED, RUNNING, WAITING, DONE, FAILED, DEAD, CANCELLED = range(10)
STATES = ("gathering", "held", "ready", "blocked", "running", "waiting", "done", "failed", "dead", "cancelled")

FINAL: dict[type, int] = {Finished: DONE, Failed: FAILED, Dead: DEAD, Cancelled: CANCELLED}
"""The state in which an outcome leaves its run."""

NEVER = 2**62
"""The due time, in a table, of a run that only an answer can wake."""


def run_id_of(seal: Seal, uid: str, epoch: int, run_key: str, replay: str = "") -> bytes:
    return seal.name(f"run\0{uid}\0{epoch}\0{run_key}\0{replay}")


def id_of(run_id: str) -> bytes:
    """The stored form of a run's id; empty, and so never found, for what is not one."""
    try:
        return bytes.fromhex(run_id)
    except ValueError:
        return b""


def last_words(outcome: RunOutcome) -> tuple[str, Any]:
    """Error and output of a run's try."""
    if isinstance(outcome, Finished):
        return "", outcome.output
    if isinstance(outcome, Cancelled):
        return outcome.reason, None
    return outcome.error, None
