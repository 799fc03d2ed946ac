"""What blocks and attachments say, for messages without a text of their own; with the marks that a text has.

https://docs.slack.dev/reference/block-kit/blocks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harken.kit.fields import text_of

__all__ = ["attached_text", "block_text"]

DEEPEST = 10
_NO_PREVIEW = "[no preview available]"
# what people are asked to click on or to fill in is not said
_SILENT = frozenset({"actions", "input"})
_ONE_LINE = frozenset({"rich_text_section", "rich_text_preformatted", "rich_text_quote"})
_MARKS = {
    "user": ("user_id", "<@{}>"),
    "channel": ("channel_id", "<#{}>"),
    "usergroup": ("usergroup_id", "<!subteam^{}>"),
    "broadcast": ("range", "<!{}>"),
    "emoji": ("name", ":{}:"),
    "date": ("fallback", "{}"),
    "mrkdwn": ("text", "{}"),
    "plain_text": ("text", "{}"),
    "markdown": ("text", "{}"),
    "image": ("alt_text", "{}"),
}


def block_text(blocks: Any) -> str:
    """What the blocks say, one below the other."""
    return "\n".join(filter(None, (_said(block, 0) for block in _objects(blocks))))


def attached_text(attachments: Any) -> str:
    """What the attachments say: the summary that each brings along, or else what it shows."""
    return "\n".join(filter(None, map(_shown, _objects(attachments))))


def _shown(attachment: Mapping[str, Any]) -> str:
    summary = text_of(attachment, "fallback")
    if summary and summary != _NO_PREVIEW:
        return summary
    parts = [text_of(attachment, name) for name in ("pretext", "title", "text")]
    return "\n".join(filter(None, [*parts, block_text(attachment.get("blocks"))]))


def _said(node: Mapping[str, Any], depth: int) -> str:
    kind = text_of(node, "type") or ""
    if kind in _MARKS:
        name, mark = _MARKS[kind]
        value = text_of(node, name)
        return mark.format(value) if value else ""
    if kind in ("text", "raw_text"):
        return _escaped(text_of(node, "text") or "")
    if kind == "link":
        url, label = text_of(node, "url") or "", _escaped(text_of(node, "text") or "")
        return f"<{url}|{label}>" if url and label else f"<{url}>" if url else label
    if kind in _SILENT or depth > DEEPEST:
        return ""
    inside = (_said(one, depth + 1) for one in _children(node))
    return ("" if kind in _ONE_LINE else "\n").join(filter(None, inside))


def _children(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from _objects([node.get("text"), node.get("title")])
    for name in ("fields", "elements"):
        yield from _objects(node.get(name))
    rows = node.get("rows")
    for row in rows if isinstance(rows, list) else []:
        yield from _objects(row)


def _objects(values: Any) -> list[dict[str, Any]]:
    return [one for one in values if isinstance(one, dict)] if isinstance(values, list) else []


def _escaped(text: str) -> str:
    # rich text holds plain characters, where a text has entities
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
