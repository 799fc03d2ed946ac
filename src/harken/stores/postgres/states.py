"""The states of a run as they are stored, and how its id is made."""

from __future__ import annotations

from harken.stores.seal import Seal

__all__ = [
    "BLOCKED",
    "CANCELLED",
    "DEAD",
    "DONE",
    "FAILED",
    "GATHERING",
    "HELD",
    "NEVER",
    "READY",
    "RUNNING",
    "STATES",
    "WAITING",
    "id_of",
    "run_id_of",
]

GATHERING, HELD, READY, BLOCKED, RUNNING, WAITING, DONE, FAILED, DEAD, CANCELLED = range(10)
STATES = ("gathering", "held", "ready", "blocked", "running", "waiting", "done", "failed", "dead", "cancelled")

NEVER = 2**62
"""The due time of a run that only an answer can wake."""


def run_id_of(seal: Seal, uid: str, epoch: int, run_key: str, replay: str = "") -> bytes:
    return seal.name(f"run\0{uid}\0{epoch}\0{run_key}\0{replay}")


def id_of(run_id: str) -> bytes:
    """The stored form of a run's id; empty, and so never found, for what is not one."""
    try:
        return bytes.fromhex(run_id)
    except ValueError:
        return b""
