"""What a Slack message says, and to whom: marks like <@U123> are read before entities are decoded, never after.

https://docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from harken.kit.fields import text_of
from harken.services.slack.blocks import attached_text, block_text

__all__ = ["defused", "is_bots", "is_noise", "mentioned", "readable", "written_text"]

_MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_MARK = re.compile(r"<([^<>]*)>|&(amp|lt|gt);")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">"}
# what Slack puts in place of a text that an app left out
_NOT_SHOWN = "This content can't be displayed."
_LOUD = re.compile(r"<!(?:(here|channel|everyone|group)(?:\|[^<>]*)?|subteam\^([A-Z0-9]+)(?:\|([^<>]*))?)>")
_LOUD_START = re.compile(r"<(?=!(?:here|channel|everyone|group|subteam\^))")
_LOUD_ELEMENTS = {"broadcast": "range", "usergroup": "usergroup_id"}
_NOISE_STARTS = ("channel_", "group_", "bot_add", "bot_remove", "bot_enable", "bot_disable")
_NOISE = frozenset(
    {"tombstone", "message_deleted", "message_changed", "message_replied", "pinned_item", "unpinned_item"}
    | {"reminder_add", "sh_room_created", "huddle_thread", "app_conversation_join", "joiner_notification"}
    | {"ekm_access_denied", "assistant_app_thread", "document_mention"}
)


def is_noise(message: Mapping[str, Any]) -> bool:
    """Joins, topics, deletions and the like: nobody wrote them. A subtype that is new to us counts as a message."""
    subtype = text_of(message, "subtype") or ""
    return message.get("hidden") is True or subtype in _NOISE or subtype.startswith(_NOISE_STARTS)


def is_bots(message: Mapping[str, Any]) -> bool:
    # Slackbot has no bot_id
    return bool(message.get("bot_id")) or message.get("subtype") == "bot_message" or message.get("user") == "USLACKBOT"


def written_text(message: Mapping[str, Any]) -> str:
    """The text as Slack stores it; where it has none, what its blocks and attachments say."""
    text = message.get("text")
    text = text if isinstance(text, str) else ""
    if text and text != _NOT_SHOWN:
        return text
    said = (block_text(message.get("blocks")), attached_text(message.get("attachments")))
    return "\n".join(filter(None, said)) or text


def mentioned(text: str) -> list[str]:
    """The ids of the users who are mentioned, in their order. Groups and @here are nobody in particular."""
    return list(dict.fromkeys(_MENTION.findall(text)))


def readable(text: str, names: Callable[[str], str], rooms: Callable[[str], str]) -> str:
    """The text as people see it: `@name`, `#channel`, plain links and characters. One pass, nothing decoded twice."""

    def shown(match: re.Match[str]) -> str:
        inner, entity = match.groups()
        return _ENTITIES[entity] if entity else _shown_mark(inner, names, rooms)

    return _MARK.sub(shown, text)


def defused(value: Any) -> Any:
    """The value without marks that call a whole channel or group together, at any depth."""
    if isinstance(value, str):
        quiet = _LOUD.sub(lambda match: "@" + (match[1] or (match[3] or match[2]).removeprefix("@")), value)
        # one mark in the other: of <!here|<!here>> the outer one would be left
        return _LOUD_START.sub("&lt;", quiet)
    if isinstance(value, Mapping):
        named = _LOUD_ELEMENTS.get(str(value.get("type")))
        if named is not None and isinstance(value.get(named), str):
            return {"type": "text", "text": f"@{value[named]}"}
        return {key: defused(inner) for key, inner in value.items()}
    return [defused(inner) for inner in value] if isinstance(value, list) else value


def _shown_mark(inner: str, names: Callable[[str], str], rooms: Callable[[str], str]) -> str:
    body, _, label = inner.partition("|")
    label = _decoded(label)
    if body.startswith("@"):
        return f"@{names(body[1:]) or label or body[1:]}"
    if body.startswith("#"):
        return f"#{label or rooms(body[1:]) or body[1:]}"
    if body.startswith("!"):
        return label or f"@{body[1:].rpartition('^')[2]}"
    link = _decoded(body.removeprefix("mailto:"))
    return f"{label} ({link})" if label and label != link else link


def _decoded(text: str) -> str:
    return _MARK.sub(lambda match: _ENTITIES.get(match[2], match[0]), text)
