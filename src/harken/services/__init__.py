"""The installed services, built-in or not. All are found through one entry point group and imported when needed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from harken.source import Plugin

__all__ = ["GROUP", "Services", "registry"]

GROUP = "harken.services"
_OURS = "harken."


class Services(Mapping[str, Plugin]):
    """Plugins by kind or alias. One that cannot be loaded is left out; `broken` has the reason.

    Threads may look services up at once: who asks for one that another thread is importing waits for it."""

    def __init__(self, points: Iterable[EntryPoint]) -> None:
        self._points: dict[str, EntryPoint] = {}
        self._loaded: dict[str, Plugin] = {}
        self._broken: dict[str, str] = {}
        self._lock = threading.RLock()
        # built-ins first: a plugin can add a kind, but not replace one
        for point in sorted(points, key=lambda point: not point.value.startswith(_OURS)):
            self._add(point)

    @property
    def broken(self) -> Mapping[str, str]:
        """Why a service cannot be used, by its name. Loads all services."""
        self._load_all()
        return self._broken

    def __getitem__(self, kind: str) -> Plugin:
        with self._lock:
            if kind in self._points:
                self._load(kind)
            elif kind not in self._loaded:
                self._load_all()
            return self._loaded[kind]

    def __iter__(self) -> Iterator[str]:
        """Yield every kind by its own name, without aliases. Loads all services."""
        with self._lock:
            self._load_all()
            return iter([name for name, plugin in self._loaded.items() if plugin.kind == name])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _add(self, point: EntryPoint) -> None:
        first = self._points.setdefault(point.name, point)
        if first.value != point.value:
            self._broken[f"{point.name} ({point.value})"] = f"the name is taken by {first.value}"

    def _load_all(self) -> None:
        with self._lock:
            for name in list(self._points):
                self._load(name)

    def _load(self, name: str) -> None:
        point = self._points.pop(name, None)
        if point is None:
            return
        try:
            plugin = point.load()
        except (Exception, SystemExit) as error:
            # a plugin that fails on import must not break the others
            self._broken[name] = f"{point.value} cannot be imported: {type(error).__name__}: {error}"[:300]
            return
        if not isinstance(plugin, Plugin):
            self._broken[name] = f"{point.value} is not a harken.source.Plugin"
            return
        for known in (plugin.kind, name, *plugin.aliases):
            self._loaded.setdefault(known, plugin)


@cache
def registry() -> Services:
    """Return all installed services. Looking one up imports only that one."""
    return Services(entry_points(group=GROUP))
