"""Many items by name, and what they were at a moment: to have that costs what has changed since, not what there is.

A configuration may have 100,000 rows, and each change of one makes a new configuration. Whoever has an older one,
perhaps in another thread, sees it as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

__all__ = ["Items", "Snapshot", "SnapshotValues"]

Item = TypeVar("Item")

FEWEST = 100
SHARE = 50
"""Changes are kept apart until they are more than FEWEST, and than one in SHARE of the items: then all are copied."""

_UNCHANGED: Any = object()
_GONE: Any = object()


class Snapshot(Mapping[str, Item]):
    """Items by name, as they were at one moment."""

    __slots__ = ("_base", "_changes", "_length")

    def __init__(self, base: Mapping[str, Item], changes: Mapping[str, Item], length: int) -> None:
        # nobody changes these from now on
        self._base = base
        self._changes = changes
        self._length = length

    def __getitem__(self, name: str) -> Item:
        found = self._changes.get(name, _UNCHANGED)
        if found is _GONE:
            raise KeyError(name)
        return self._base[name] if found is _UNCHANGED else found

    def __contains__(self, name: object) -> bool:
        found = self._changes.get(name, _UNCHANGED)  # type: ignore[call-overload]
        return name in self._base if found is _UNCHANGED else found is not _GONE

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole())

    def __len__(self) -> int:
        return self._length

    def whole(self) -> Mapping[str, Item]:
        """All of them in one mapping, which is fast to go through."""
        return _merge(self._base, self._changes) if self._changes else self._base


class SnapshotValues(Sequence[Item]):
    """The items of a snapshot, one after the other; `by_name` is the snapshot."""

    __slots__ = ("by_name",)

    def __init__(self, by_name: Snapshot[Item]) -> None:
        self.by_name = by_name

    def __iter__(self) -> Iterator[Item]:
        return iter(self.by_name.whole().values())

    def __len__(self) -> int:
        return len(self.by_name)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        return tuple(self)[index]

    def __repr__(self) -> str:
        return f"<{len(self)} items>"


class Items(Generic[Item]):
    """Items by name that are changed one by one; `snapshot` is what they are now."""

    __slots__ = ("_base", "_changes", "_length", "_shared", "_taken")

    def __init__(self, items: Mapping[str, Item]) -> None:
        self._base = dict(items)
        # since a snapshot has the base too; _GONE for what is no more
        self._changes: dict[str, Item] = {}
        self._length = len(self._base)
        self._shared = False
        self._taken: Snapshot[Item] | None = None

    def get(self, name: str) -> Item | None:
        found = self._changes.get(name, _UNCHANGED)
        return self._base.get(name) if found is _UNCHANGED else None if found is _GONE else found

    def __getitem__(self, name: str) -> Item:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __setitem__(self, name: str, item: Item) -> None:
        self._length += name not in self
        self._taken = None
        if self._shared:
            self._changes[name] = item
        else:
            self._base[name] = item

    def pop(self, name: str) -> Item | None:
        """Remove the item and return it; None if there is none."""
        found = self.get(name)
        if found is None:
            return None
        self._length -= 1
        self._taken = None
        if not self._shared:
            del self._base[name]
        elif name in self._base:
            self._changes[name] = _GONE
        else:
            del self._changes[name]
        return found

    def snapshot(self) -> Snapshot[Item]:
        """What the items are now; the same one until something changes."""
        if self._taken is None:
            if len(self._changes) > max(FEWEST, len(self._base) // SHARE):
                self._base, self._changes = _merge(self._base, self._changes), {}
            self._taken = Snapshot(self._base, dict(self._changes), self._length)
            self._shared = True
        return self._taken


def _merge(base: Mapping[str, Item], changes: Mapping[str, Item]) -> dict[str, Item]:
    found = {**base, **changes}
    for name, item in changes.items():
        if item is _GONE:
            del found[name]
    return found
