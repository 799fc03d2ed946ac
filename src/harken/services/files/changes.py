"""What differs between two scans, in the words of events, and which of it has settled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from harken.kit.file_manifest import Difference
from harken.services.files.directory_tree_listing import unpack_stamp

__all__ = ["Change", "Settling", "changes_of"]

Kind = Literal["created", "changed", "deleted", "renamed"]


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What happened to a file. A stamp is empty where there is no such file; `old_path` is set for renamed ones.

    `after`: the last scan that did not show it, if that is known.
    """

    kind: Kind
    path: bytes
    old: bytes = b""
    new: bytes = b""
    old_path: bytes = b""
    after: float | None = None

    @property
    def difference(self) -> Difference:
        return Difference(self.path, b"" if self.kind == "renamed" else self.old, self.new)

    @property
    def differences(self) -> Sequence[Difference]:
        """The changes of the manifest that make this one known."""
        if self.kind == "renamed":
            return (Difference(self.old_path, self.old, b""), self.difference)
        return (self.difference,)


def changes_of(found: Iterable[Difference]) -> tuple[list[Change], list[Difference]]:
    """Return the changes, and differences that are none: another inode alone, as some network drives give them out."""
    changes, silent = list[Change](), list[Difference]()
    gone, came = dict[bytes, list[Difference]](), list[Difference]()
    for difference in found:
        if not difference.new:
            gone.setdefault(difference.old, []).append(difference)
        elif not difference.old:
            came.append(difference)
        elif unpack_stamp(difference.old)[:2] == unpack_stamp(difference.new)[:2]:
            silent.append(difference)
        else:
            changes.append(Change(kind="changed", path=difference.path, old=difference.old, new=difference.new))
    for difference in came:
        # the same inode, size and time under another name; an inode alone may have been used again
        if gone.get(difference.new):
            old = gone[difference.new].pop(0)
            changes.append(
                Change(kind="renamed", path=difference.path, old=old.old, new=difference.new, old_path=old.path)
            )
        else:
            changes.append(Change(kind="created", path=difference.path, new=difference.new))
    changes += [Change(kind="deleted", path=left.path, old=left.old) for some in gone.values() for left in some]
    return sorted(changes, key=_order), silent


def _order(change: Change) -> tuple[int, bytes]:
    """What made room comes first, then the oldest."""
    if change.kind in ("deleted", "renamed"):
        return -(1 << 63), change.path
    return unpack_stamp(change.new).mtime_ns, change.path


class Settling:
    """A change counts when two scans, so many seconds apart, showed the same. A renamed file was settled before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._scanned_at: float | None = None
        self._waiting: dict[bytes, tuple[bytes, float, float | None]] = {}

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    def settled(self, changes: Sequence[Change], now: float, *, first: bool) -> list[Change]:
        """Return those that count at this scan. In the `first` read those that were written long enough ago."""
        before, self._waiting = self._waiting, {}
        # what the first read finds is as old as it says, also if it settles only later
        last, self._scanned_at = 0.0 if first else self._scanned_at, now
        ready = list[Change]()
        for change in changes:
            if first and self._is_old(change, now):
                ready.append(change)
                continue
            stamp, since, after = before.get(change.path, (None, now, last))
            if stamp != change.new or since > now:
                since, after = now, last
            self._waiting[change.path] = (change.new, since, after)
            again = stamp is not None and now - since >= self._seconds
            if again or not self._seconds or change.kind == "renamed":
                ready.append(msgspec.structs.replace(change, after=after))
        return ready

    def forget(self, paths: Iterable[bytes]) -> None:
        """These are shown, or have to settle anew."""
        for path in paths:
            self._waiting.pop(path, None)

    def _is_old(self, change: Change, now: float) -> bool:
        return unpack_stamp(change.new or change.old).mtime_ns / 1e9 <= now - self._seconds
