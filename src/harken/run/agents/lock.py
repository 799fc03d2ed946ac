"""The lock of a workspace. Every process of an agent holds it, so two agents never work in one workspace.

The store's lease keeps two machines apart. This lock is for one machine: there an old agent may still be about to end
when the run has been claimed again, because a clock was set, or because a restarted Harken claims its runs at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import msgspec

from harken.clock import Clock
from harken.errors import Deferred
from harken.private_files import make_private, write_private
from harken.run.agents.leftovers import kill_leftovers
from harken.run.agents.supervisor import boot_seconds

__all__ = ["WorkspaceLock", "lock_workspace"]

LOOK_SECONDS = 0.1
OVERDUE = 2.0
"""Seconds after the end of its claim for which the holder of a lock is not disturbed: it is about to end."""


class _Holder(msgspec.Struct):
    """Until when the holder's claim lasts, by `boot_seconds`."""

    until: float = 0.0


class WorkspaceLock:
    """A held lock. `descriptor` is what the agent inherits; closing ours does not unlock while an agent lives."""

    def __init__(self, directory: Path, descriptor: int) -> None:
        self.descriptor = descriptor
        self._note = directory / "holder.json"

    def note_until(self, until: float) -> None:
        """Tell others on this machine until when our claim lasts."""
        write_private(self._note, msgspec.json.encode(_Holder(until)))

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


async def lock_workspace(directory: Path, clock: Clock, patience: float) -> WorkspaceLock:
    """Wait for the lock of this workspace. Raise Deferred if another agent still works there after `patience` seconds.

    Processes that hold it although their claim is over are killed: Harken and their supervisor were killed before."""
    make_private(directory)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    lock = WorkspaceLock(directory, descriptor)
    try:
        give_up = clock.monotonic() + patience
        while not _try_lock(descriptor):
            if boot_seconds() > _read_until(directory) + OVERDUE:
                kill_leftovers(directory)
            if clock.monotonic() >= give_up:
                fix = "The run waits for it. If the agent of that run hangs, cancel that run"
                raise Deferred("another agent still works on this ticket on this machine", after=10.0, fix=fix)
            await clock.sleep(LOOK_SECONDS)
        # whoever closed the inherited lock, as daemons do, is found by its environment
        kill_leftovers(directory)
    except BaseException:
        lock.release()
        raise
    return lock


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_until(directory: Path) -> float:
    try:
        return msgspec.json.decode((directory / "holder.json").read_bytes(), type=_Holder).until
    except (OSError, msgspec.MsgspecError):
        # it has just taken the lock
        return boot_seconds()
