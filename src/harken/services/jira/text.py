"""Jira's two kinds of rich text, as plain text: Cloud sends document objects (ADF), Server sends wiki text.

The nodes: https://developer.atlassian.com/cloud/jira/platform/apis/document/structure/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

__all__ = ["document_of", "mentions", "text_in"]

MAX_DEPTH = 50
_CUT = "…"
_MENTION = re.compile(r"\[~accountid:([0-9A-Za-z:-]{1,128})\]")
_LISTS = {"bulletList": "- ", "taskList": "- ", "decisionList": "- ", "orderedList": ""}
_INLINE = frozenset(
    {"text", "hardBreak", "mention", "emoji", "inlineCard", "date", "status", "mediaInline", "placeholder"}
    | {"inlineExtension"}
)


def text_in(value: Any) -> str:
    """Return the text of a document object, or wiki text as it is. Of unknown nodes the text inside is kept."""
    if isinstance(value, str):
        return value
    return _block(value, 0).strip() if isinstance(value, Mapping) else ""


def mentions(value: Any, ids: Collection[str]) -> bool:
    """Whether a document or wiki text mentions one of these users (`ids` in lower case)."""
    if isinstance(value, str):
        folded = value.casefold()
        return any(f"[~{id}]" in folded or f"[~accountid:{id}]" in folded for id in ids)
    return any(node.get("type") == "mention" and _attr(node, "id").casefold() in ids for node in _nodes(value))


def document_of(text: str, *, mentions: bool = False) -> dict[str, Any]:
    """Return plain text as a document: empty lines separate paragraphs, other line ends stay.

    With `mentions`, `[~accountid:ID]` mentions that account, as it does in the wiki text of Server."""
    paragraphs = [part.strip("\n") for part in text.replace("\r\n", "\n").split("\n\n")]
    content = [{"type": "paragraph", "content": _lines(part, mentions)} for part in paragraphs if part.strip()]
    return {"type": "doc", "version": 1, "content": content}


def _lines(paragraph: str, mentions: bool) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = []
    for number, line in enumerate(paragraph.split("\n")):
        nodes += [{"type": "hardBreak"}] if number else []
        for index, part in enumerate(_MENTION.split(line) if mentions else [line]):
            mention = {"type": "mention", "attrs": {"id": part}}
            nodes += [mention if index % 2 else {"type": "text", "text": part}] if part else []
    return nodes


def _nodes(value: Any) -> Iterator[Mapping[str, Any]]:
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            yield node
            waiting.extend(_content(node))


def _block(node: Any, depth: int) -> str:
    if not isinstance(node, Mapping):
        return ""
    if depth > MAX_DEPTH:
        return _CUT
    kind = _kind(node)
    if kind in _INLINE:
        return _inline(node)
    if kind in _LISTS:
        return _list(node, _LISTS[kind], depth)
    shape = _SHAPES.get(kind)
    if shape is not None:
        return shape(node, depth)
    card = _attr(node, "url") or _attr(node, "title") or _attr(node, "alt")
    return "\n\n".join(part for part in (card, _inside(node, depth)) if part)


def _inside(node: Mapping[str, Any], depth: int) -> str:
    """Join blocks with empty lines between. Inline nodes side by side are one block."""
    blocks: list[str] = []
    line = ""
    for child in _content(node):
        if isinstance(child, Mapping) and _kind(child) in _INLINE:
            line += _inline(child)
            continue
        blocks += [line, _block(child, depth + 1)]
        line = ""
    return "\n\n".join(block for block in (*blocks, line) if block.strip())


def _inline(node: Mapping[str, Any]) -> str:
    kind = _kind(node)
    if kind == "text":
        return _linked(node)
    if kind == "hardBreak":
        return "\n"
    if kind == "date":
        return _day(_attr(node, "timestamp"))
    if kind == "mention":
        # the name is optional, the id is not
        return _attr(node, "text") or f"@{_attr(node, 'id')}"
    return _attr(node, "text") or _attr(node, "shortName") or _attr(node, "url") or _attr(node, "alt")


def _linked(node: Mapping[str, Any]) -> str:
    text = node.get("text")
    text = text if isinstance(text, str) else ""
    marks = node.get("marks")
    for mark in marks if isinstance(marks, list) else []:
        href = _attr(mark, "href") if isinstance(mark, Mapping) else ""
        if href and href != text:
            return f"{text} ({href})"
    return text


def _day(timestamp: str) -> str:
    try:
        return f"{datetime.fromtimestamp(int(timestamp) / 1000, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):
        return timestamp


def _list(node: Mapping[str, Any], bullet: str, depth: int) -> str:
    items: list[str] = []
    for number, item in enumerate(_content(node), 1):
        lead = bullet or f"{number}. "
        text = _block(item, depth + 1).replace("\n\n", "\n").replace("\n", "\n" + " " * len(lead))
        items.append(lead + text)
    return "\n".join(items)


def _quote(node: Mapping[str, Any], depth: int) -> str:
    return "\n".join(f"> {line}".rstrip() for line in _inside(node, depth).splitlines())


def _code(node: Mapping[str, Any], depth: int) -> str:
    return f"```{_attr(node, 'language')}\n{_inside(node, depth)}\n```"


def _row(node: Mapping[str, Any], depth: int) -> str:
    return " | ".join(_block(cell, depth + 1).replace("\n", " ") for cell in _content(node))


def _table(node: Mapping[str, Any], depth: int) -> str:
    return "\n".join(_block(row, depth + 1) for row in _content(node))


def _rule(node: Mapping[str, Any], depth: int) -> str:
    return "---"


_SHAPES: Mapping[str, Callable[[Mapping[str, Any], int], str]] = {
    "blockquote": _quote,
    "codeBlock": _code,
    "rule": _rule,
    "table": _table,
    "tableRow": _row,
}


def _kind(node: Mapping[str, Any]) -> str:
    kind = node.get("type")
    return kind if isinstance(kind, str) else ""


def _content(node: Mapping[str, Any]) -> Sequence[Any]:
    content = node.get("content")
    return content if isinstance(content, list) else ()


def _attr(node: Mapping[str, Any], name: str) -> str:
    attrs = node.get("attrs")
    value = attrs.get(name) if isinstance(attrs, Mapping) else None
    return str(value) if isinstance(value, str | int) else ""
