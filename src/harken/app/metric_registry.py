"""Counters, histograms and gauges, and their page in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["Labels", "Metrics"]

Labels = tuple[tuple[str, str], ...]
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MOST_SERIES = 2_000
"""Series of one metric. Outsiders choose some label values; beyond this number they are counted as `other`."""


class Metrics:
    """Counts by name and labels; gauges are evaluated for each page. `most` bounds the series of a metric, if set."""

    def __init__(self, most: int | None = MOST_SERIES) -> None:
        self._most = most
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, tuple[list[int], list[float]]]] = {}
        self._buckets: dict[str, Sequence[float]] = {}
        self._gauges: dict[str, Callable[[], Mapping[Labels, float]]] = {}
        self._help: dict[str, str] = {}

    def counter(self, name: str, help: str) -> Callable[..., None]:
        """A function that counts: `count(2, integration="json")`."""
        self._help[name] = help
        table = self._counters.setdefault(name, {})

        def count(by: float = 1, **labels: str) -> None:
            # each caller passes its labels in one order, so they need no sorting
            key = tuple(labels.items())
            if key not in table:
                key = _bounded(table, key, self._most)
            table[key] = table.get(key, 0) + by

        return count

    def histogram(self, name: str, help: str, buckets: Sequence[float] = BUCKETS) -> Callable[..., None]:
        """A function that observes a value; None creates the series without one."""
        self._help[name] = help
        self._buckets[name] = buckets
        table = self._histograms.setdefault(name, {})

        def observe(value: float | None, **labels: str) -> None:
            key = tuple(labels.items())
            found = table.get(key)
            if found is None:
                key = _bounded(table, key, self._most)
                found = table.setdefault(key, ([0] * (len(buckets) + 1), [0.0]))
            counts, total = found
            if value is not None:
                counts[bisect_left(buckets, value)] += 1
                total[0] += value

        return observe

    def gauge(self, name: str, help: str, read: Callable[[], float]) -> None:
        self._help[name] = help
        self._gauges[name] = lambda: {(): read()}

    def gauges(self, name: str, help: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        """One value for each value of the label."""
        self._help[name] = help
        self._gauges[name] = lambda: {((label, value),): number for value, number in read().items()}

    def series(self, name: str, help: str, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Values with several labels each: `((("trigger", "news"), ("hold", "flood")), 3)`."""
        self._help[name] = help
        self._gauges[name] = read

    def keep(self, label: str, values: Collection[str]) -> None:
        """Drop every series whose `label` has another value, because what it counted is gone."""
        always = (None,) if self._most is None else (None, "other")
        tables: list[dict[Labels, Any]] = [*self._counters.values(), *self._histograms.values()]
        for table in tables:
            for key in list(table):
                value = dict(key).get(label)
                if value not in always and value not in values:
                    del table[key]

    def page(self) -> bytes:
        """Everything in Prometheus' text format."""
        return "".join(f"{line}\n" for line in self._lines()).encode("utf-8", "replace")

    def _lines(self) -> Iterable[str]:
        for name, table in self._counters.items():
            yield from self._head(name, "counter")
            yield from (f"{name}{_label_text(labels)} {_number(value)}" for labels, value in sorted(table.items()))
        for name, series in self._histograms.items():
            yield from self._head(name, "histogram")
            for labels, (counts, total) in sorted(series.items()):
                yield from _buckets(name, labels, self._buckets[name], counts, total[0])
        for name, read in self._gauges.items():
            yield from self._head(name, "gauge")
            yield from (f"{name}{_label_text(labels)} {_number(value)}" for labels, value in sorted(read().items()))

    def _head(self, name: str, kind: str) -> Iterable[str]:
        yield f"# HELP {name} {self._help[name]}"
        yield f"# TYPE {name} {kind}"


def _bounded(table: Collection[Labels], key: Labels, most: int | None) -> Labels:
    return key if most is None or len(table) < most else tuple((name, "other") for name, _ in key)


def _buckets(name: str, labels: Labels, edges: Sequence[float], counts: list[int], total: float) -> Iterable[str]:
    below = 0
    for edge, count in zip((*map(str, edges), "+Inf"), counts, strict=True):
        below += count
        yield f"{name}_bucket{_label_text((*labels, ('le', edge)))} {below}"
    yield f"{name}_sum{_label_text(labels)} {total:.6f}"
    yield f"{name}_count{_label_text(labels)} {below}"


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
