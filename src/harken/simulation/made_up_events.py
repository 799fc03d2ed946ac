"""Makes up events that a configuration can do something with: fields that its conditions and templates read.

Values are the ones that conditions compare with, and others, so that some events match and some do not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from harken.config.loaded import Loaded
from harken.errors import HarkenError
from harken.feed import Join, Trigger
from harken.language.cel import Condition, bind, compile_condition, needs_of
from harken.language.cel.parser import Node, literal_text, loop_variable, static_path

__all__ = ["Shape", "shape_of"]

_FIELD = re.compile(r"\.(?:trigger\.)?event\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
TRIES = 30
"""So many events are made up to find one that a condition wants."""

Path = tuple[str, ...]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a feed's events with the values that matter, and the conditions that read them."""

    fields: Mapping[Path, tuple[Any, ...]]
    conditions: tuple[Condition, ...] = ()
    routes: tuple[str, ...] = ()

    def data(self, random: Random, subject: str) -> dict[str, Any]:
        """Made-up data; in about every second event at least one condition is true, if that can be had."""
        wanted = random.random() < 0.6
        found = self._draw(random, subject)
        for _ in range(TRIES if wanted and self.conditions else 0):
            if any(_holds(condition, found) for condition in self.conditions):
                break
            found = self._draw(random, subject)
        return found

    def _draw(self, random: Random, subject: str) -> dict[str, Any]:
        data: dict[str, Any] = {"id": subject, "title": f"stand-in {subject}"}
        for path, values in self.fields.items():
            _put(data, path, random.choice(values) if values else f"{path[-1]} of {subject}")
        if self.routes:
            data["pipeline"] = random.choice(self.routes)
        return data


def shape_of(triggers: Sequence[Trigger], loaded: Loaded) -> Shape:
    """The shape of the events that these triggers of one feed listen to."""
    fields: dict[Path, list[Any]] = {}
    conditions: list[Condition] = []
    for trigger in triggers:
        for path in _templates(trigger, loaded):
            fields.setdefault(path, [])
        for source in _conditions(trigger):
            condition = compile_condition(source)
            conditions.append(condition)
            for path, values in _reads(condition):
                fields.setdefault(path, []).extend(values)
    known = {path: tuple(_unique(values)) for path, values in sorted(fields.items(), key=lambda pair: len(pair[0]))}
    # a field that has fields of its own is an object
    leaves = {path: values for path, values in known.items() if not any(_is_inside(other, path) for other in known)}
    routes = tuple(sorted({route for trigger in triggers for route in trigger.routes}))
    return Shape(fields=leaves, conditions=tuple(conditions), routes=routes)


def _conditions(trigger: Trigger) -> Iterator[str]:
    """What events are compared with: the trigger's condition, and which of them are parts of its join."""
    parts = trigger.gather.parts if isinstance(trigger.gather, Join) else ()
    yield from (source for source in (trigger.condition, *(part.when for part in parts)) if source)


def _is_inside(path: Path, outer: Path) -> bool:
    return len(path) > len(outer) and path[: len(outer)] == outer


def _unique(values: Sequence[Any]) -> Iterator[Any]:
    seen: set[str] = set()
    for value in values:
        if (text := json.dumps(value, sort_keys=True)) not in seen:
            seen.add(text)
            yield value


def _templates(trigger: Trigger, loaded: Loaded) -> Iterator[Path]:
    flows = [loaded.workflows[name].definition for name in trigger.workflows if name in loaded.workflows]
    text = json.dumps(
        [trigger.mapping, trigger.concurrency_key, msgspec.to_builtins(trigger.gather), flows], default=str
    )
    yield from dict.fromkeys(tuple(found.split(".")) for found in _FIELD.findall(text))


def _reads(condition: Condition) -> Iterator[tuple[Path, list[Any]]]:
    for path in (path for _, path in condition.reads):
        if path[0] == "event" and len(path) > 1 and all(isinstance(part, str) for part in path):
            yield tuple(map(str, path[1:])), []
    yield from _compared(condition.tree)


def _compared(node: Node) -> Iterator[tuple[Path, list[Any]]]:
    if node.kind == "binary" and node.text in ("==", "!=", "<", "<=", ">", ">=", "in"):
        left, right = node.parts
        for one, other in ((left, right), (right, left)):
            path = _event_path(one)
            if path is not None:
                yield path, _near(other)
    elif node.kind == "call" and node.parts:
        path = _event_path(node.parts[0])
        if path is not None and loop_variable(node) is not None:
            yield path, _lists(node)
        elif path is not None:
            texts = [text for part in node.parts[1:] if (text := literal_text(part)) is not None]
            yield path, [value for text in texts for value in (text, f"{text} and more", f"not {text[::-1]}")]
    elif node.kind in ("field", "item") and (path := _event_path(node)) is not None:
        yield path, [True, False]
        return
    for part in node.parts:
        if part.kind not in ("field", "item", "name") or node.kind in ("and", "or", "unary", "choice"):
            yield from _compared(part)


def _event_path(node: Node) -> Path | None:
    path = static_path(node)
    if path is None or path[0] != "event" or len(path) < 2 or not all(isinstance(part, str) for part in path):
        return None
    return tuple(map(str, path[1:]))


def _near(node: Node) -> list[Any]:
    """The value that something is compared with, and others beside it."""
    if node.kind == "list":
        return [value for part in node.parts for value in _near(part)]
    if (text := literal_text(node)) is not None:
        return [text, f"not {text}"]
    if node.kind != "literal":
        return []
    if node.text in ("true", "false"):
        return [True, False]
    try:
        number = json.loads(node.text.rstrip("uU"))
    except ValueError:
        return []
    return [number, number + 1, number - 1] if isinstance(number, int | float) else []


def _lists(node: Node) -> list[Any]:
    """Lists for `list.exists(item, …)`: with the texts that it looks for, and without."""
    variable = loop_variable(node)
    texts: list[Any] = []
    names: list[Path] = []
    stack = list(node.parts[2:])
    while stack:
        part = stack.pop()
        path = static_path(part)
        if path is not None and path[0] == variable and len(path) > 1:
            names.append(tuple(map(str, path[1:])))
        if (text := literal_text(part)) is not None:
            texts.append(text)
        stack.extend(part.parts)
    if not names:
        return [[text] for text in texts] + [[]]
    items: list[Any] = []
    for text in texts or ["some"]:
        item: dict[str, Any] = {}
        for path in names:
            _put(item, path, text)
        items.append([item])
    return [*items, []]


def _put(data: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        inner = data.get(name)
        if not isinstance(inner, dict):
            inner = data[name] = {}
        data = inner
    data[path[-1]] = value


def _holds(condition: Condition, data: Mapping[str, Any]) -> bool:
    try:
        return condition.decide(bind({"event": data, "meta": {}}, needs_of([condition]))).outcome == "true"
    except HarkenError:
        return False
