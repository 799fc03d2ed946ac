"""Slack's markup: the text of messages, blocks and attachments, as people see it and without mass mentions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harken.kit.values_from_payload import text_of

__all__ = ["defuse", "mentioned_users", "raw_text", "to_plain_text"]

_MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_MARK = re.compile(r"<([^<>]*)>|&(amp|lt|gt);")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">"}
# what Slack puts in place of a text that an app left out
_NOT_SHOWN = "This content can't be displayed."
_LOUD = re.compile(r"<!(?:(here|channel|everyone|group)(?:\|[^<>]*)?|subteam\^([A-Z0-9]+)(?:\|([^<>]*))?)>")
_LOUD_START = re.compile(r"<(?=!(?:here|channel|everyone|group|subteam\^))")
_LOUD_ELEMENTS = {"broadcast": "range", "usergroup": "usergroup_id"}

DEEPEST = 10
_NO_PREVIEW = "[no preview available]"
# buttons and form fields are not part of the text
_INTERACTIVE = frozenset({"actions", "input"})
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


def raw_text(message: Mapping[str, Any]) -> str:
    """The text in Slack's markup; if empty, the text of its blocks and attachments."""
    text = message.get("text")
    text = text if isinstance(text, str) else ""
    if text and text != _NOT_SHOWN:
        return text
    parts = (block_text(message.get("blocks")), attached_text(message.get("attachments")))
    return "\n".join(filter(None, parts)) or text


def mentioned_users(text: str) -> list[str]:
    """The ids of the mentioned users, in order. Groups and @here are not users."""
    return list(dict.fromkeys(_MENTION.findall(text)))


def to_plain_text(text: str, names: Callable[[str], str], channel_names: Callable[[str], str]) -> str:
    """The text as people see it: `@name`, `#channel`, plain links and characters. Nothing is decoded twice."""

    def replace(match: re.Match[str]) -> str:
        inner, entity = match.groups()
        return _ENTITIES[entity] if entity else _mark_text(inner, names, channel_names)

    return _MARK.sub(replace, text)


def defuse(value: Any) -> Any:
    """The text or Block Kit value without mentions of a whole channel or group, at any depth."""
    if isinstance(value, str):
        quiet = _LOUD.sub(lambda match: "@" + (match[1] or (match[3] or match[2]).removeprefix("@")), value)
        # nested marks: of <!here|<!here>> the outer one would remain
        return _LOUD_START.sub("&lt;", quiet)
    if isinstance(value, Mapping):
        named = _LOUD_ELEMENTS.get(str(value.get("type")))
        if named is not None and isinstance(value.get(named), str):
            return {"type": "text", "text": f"@{value[named]}"}
        return {key: defuse(inner) for key, inner in value.items()}
    return [defuse(inner) for inner in value] if isinstance(value, list) else value


def _mark_text(inner: str, names: Callable[[str], str], channel_names: Callable[[str], str]) -> str:
    body, _, channel_label = inner.partition("|")
    channel_label = _unescape(channel_label)
    if body.startswith("@"):
        return f"@{names(body[1:]) or channel_label or body[1:]}"
    if body.startswith("#"):
        return f"#{channel_label or channel_names(body[1:]) or body[1:]}"
    if body.startswith("!"):
        return channel_label or f"@{body[1:].rpartition('^')[2]}"
    link = _unescape(body.removeprefix("mailto:"))
    return f"{channel_label} ({link})" if channel_label and channel_label != link else link


def _unescape(text: str) -> str:
    return _MARK.sub(lambda match: _ENTITIES.get(match[2], match[0]), text)


def block_text(blocks: Any) -> str:
    """The text of the blocks, one per line."""
    return "\n".join(filter(None, (_node_text(block, 0) for block in _objects(blocks))))


def attached_text(attachments: Any) -> str:
    """The text of the attachments: of each its fallback summary, else its visible parts."""
    return "\n".join(filter(None, map(_attachment_text, _objects(attachments))))


def _attachment_text(attachment: Mapping[str, Any]) -> str:
    summary = text_of(attachment, "fallback")
    if summary and summary != _NO_PREVIEW:
        return summary
    parts = [text_of(attachment, name) for name in ("pretext", "title", "text")]
    return "\n".join(filter(None, [*parts, block_text(attachment.get("blocks"))]))


def _node_text(node: Mapping[str, Any], depth: int) -> str:
    kind = text_of(node, "type") or ""
    if kind in _MARKS:
        name, mark = _MARKS[kind]
        value = text_of(node, name)
        return mark.format(value) if value else ""
    if kind in ("text", "raw_text"):
        return _escape(text_of(node, "text") or "")
    if kind == "link":
        url, channel_label = text_of(node, "url") or "", _escape(text_of(node, "text") or "")
        return f"<{url}|{channel_label}>" if url and channel_label else f"<{url}>" if url else channel_label
    if kind in _INTERACTIVE or depth > DEEPEST:
        return ""
    inside = (_node_text(one, depth + 1) for one in _children(node))
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


def _escape(text: str) -> str:
    # rich text has plain characters where mrkdwn has entities
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
