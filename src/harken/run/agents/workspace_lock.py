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
from harken.run.agents.orphan_processes import kill_leftovers
from harken.run.agents.process_tree_supervisor import boot_seconds

__all__ = ["WorkspaceLock", "is_locked", "lock_workspace"]

LOOK_SECONDS = 0.1
OVERDUE = 2.0
"""Seconds after the end of its claim for which the holder of a lock is not disturbed: it is about to end."""


class _Holder(msgspec.Struct):
    """Who has the lock, and until when its claim lasts by `boot_seconds`."""

    run: str
    until: float


class WorkspaceLock:
    """A held lock. `descriptor` is what the agent inherits; closing ours does not unlock while an agent lives."""

    def __init__(self, directory: Path, run: str, descriptor: int) -> None:
        self.descriptor = descriptor
        self._run = run
        self._note = directory / "holder.json"

    def note_until(self, until: float) -> None:
        """Tell others on this machine until when our claim lasts."""
        write_private(self._note, msgspec.json.encode(_Holder(self._run, until)))

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)


async def lock_workspace(directory: Path, run: str, clock: Clock, patience: float) -> WorkspaceLock:
    """Wait for the lock of this workspace. Raise Deferred if another run still works there after `patience` seconds.

    Another agent of the same run, in a branch beside ours, is waited for. Processes that hold the lock although their
    claim is over are killed: Harken and their supervisor were killed before."""
    make_private(directory)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    lock = WorkspaceLock(directory, run, descriptor)
    try:
        give_up = clock.monotonic() + patience
        while not _try_lock(descriptor):
            holder = _read_holder(directory)
            if boot_seconds() > holder.until + OVERDUE:
                kill_leftovers(directory)
            if holder.run != run and clock.monotonic() >= give_up:
                fix = "The run waits for it. If the agent of that run hangs, cancel that run"
                raise Deferred("another agent still works on this ticket on this machine", after=10.0, fix=fix)
            await clock.sleep(LOOK_SECONDS)
        # whoever closed the inherited lock, as daemons do, is found by its environment
        kill_leftovers(directory)
    except BaseException:
        lock.release()
        raise
    return lock


def is_locked(directory: Path) -> bool:
    """Whether an agent works there now."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(directory: Path) -> _Holder:
    try:
        return msgspec.json.decode((directory / "holder.json").read_bytes(), type=_Holder)
    except (OSError, msgspec.MsgspecError):
        # it has just taken the lock
        return _Holder("", boot_seconds())
