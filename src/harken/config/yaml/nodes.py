"""The tree of a YAML file: values with their positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from harken.config.findings import Path, Place

__all__ = [
    "Items",
    "Node",
    "Scalar",
    "Table",
    "Value",
    "is_empty",
    "locate",
    "strings",
    "to_nodes",
    "to_plain",
    "to_storable",
]

Value: TypeAlias = str | int | float | bool | None


class Scalar(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`shown` is what may be stored or printed, if it differs from `value`: it keeps references to secrets."""

    value: Value
    place: Place
    shown: str | None = None


class Items(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Node, ...]
    place: Place


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping in the order of the file; `keys` has the place of each key."""

    items: Mapping[str, Node]
    keys: Mapping[str, Place]
    place: Place

    def without(self, *names: str) -> Table:
        return Table(
            items={key: node for key, node in self.items.items() if key not in names}, keys=self.keys, place=self.place
        )


Node: TypeAlias = Scalar | Items | Table


def to_plain(node: Node) -> Any:
    """Return the plain values, with secrets."""
    if isinstance(node, Table):
        return {key: to_plain(value) for key, value in node.items.items()}
    if isinstance(node, Items):
        return [to_plain(item) for item in node.items]
    return node.value


def to_storable(node: Node) -> Any:
    """Return the plain values, with references in place of secrets."""
    if isinstance(node, Table):
        return {key: to_storable(value) for key, value in node.items.items()}
    if isinstance(node, Items):
        return [to_storable(item) for item in node.items]
    return node.value if node.shown is None else node.shown


def to_nodes(value: Any, place: Place) -> Node | None:
    """Return the tree of plain values, all of them at one place; None for what has to be written as YAML and parsed."""
    if isinstance(value, Mapping):
        items: dict[str, Node] = {}
        for key, inner in value.items():
            node = to_nodes(inner, place)
            # the key of a merge means something else in YAML
            if node is None or not isinstance(key, str) or key == "<<":
                return None
            items[key] = node
        return Table(items=items, keys=dict.fromkeys(items, place), place=place)
    if isinstance(value, list):
        nodes = [to_nodes(inner, place) for inner in value]
        found = tuple(node for node in nodes if node is not None)
        return Items(items=found, place=place) if len(found) == len(nodes) else None
    return Scalar(value=value, place=place) if value is None or isinstance(value, str | int | float) else None


def is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def locate(node: Node, path: Path, *, key: bool = False) -> Place:
    """Return the place of the path. Parts that are not in the file (a missing key, a union's branch) are skipped.

    With `key`, return the place of the last key instead of its value.
    """
    place = node.place
    for part in path:
        if isinstance(node, Table) and str(part) in node.items:
            place = node.keys.get(str(part), node.place) if key else node.items[str(part)].place
            node = node.items[str(part)]
        elif isinstance(node, Items) and isinstance(part, int) and 0 <= part < len(node.items):
            node = node.items[part]
            place = node.place
    return place


def strings(node: Node, path: Path = ()) -> Iterator[tuple[Path, Scalar]]:
    """Yield every text in the tree with its path."""
    if isinstance(node, Table):
        for key, value in node.items.items():
            yield from strings(value, (*path, key))
    elif isinstance(node, Items):
        for index, item in enumerate(node.items):
            yield from strings(item, (*path, index))
    elif isinstance(node.value, str):
        yield path, node
