"""Conditions of the form `a.b == "x" && c == "y"`: most are like this, and that one is true can be seen without CEL.

Everything else is left to it: other conditions, and what to say when one of these is not true.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.language.cel.ast import Node, Path, literal_text, static_path

__all__ = ["Text", "all_equal", "texts_of"]

Text = tuple[Path, str]
"""A path, and the text that stands there."""


def texts_of(tree: Node) -> tuple[Text, ...]:
    """The paths and texts of such a condition; empty for every other."""
    parts = tree.parts if tree.kind == "and" else (tree,)
    found = [_text_of(part) for part in parts]
    return tuple(one for one in found if one is not None) if None not in found else ()


def _text_of(node: Node) -> Text | None:
    if node.kind != "binary" or node.text != "==" or len(node.parts) != 2:
        return None
    path, text = static_path(node.parts[0]), literal_text(node.parts[1])
    if path is None or text is None or "meta" in path[:1] or not text.isascii():
        return None
    return (path, text) if all(isinstance(step, str) for step in path) else None


def all_equal(texts: tuple[Text, ...], variables: Mapping[str, Any]) -> bool:
    """Whether each text stands at its path. False says nothing: a value may be equal in ways that only CEL knows."""
    for path, text in texts:
        value: Any = variables
        for name in path:
            if type(value) is not dict or name not in value:
                return False
            value = value[name]
        if type(value) is not str or value != text:
            return False
    return True
