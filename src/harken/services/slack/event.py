"""From a message to an event: whether a query wants it, and what templates see of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from harken.event import Event
from harken.kit.fields import text_of
from harken.services.slack.api import Me, is_stamp, moment
from harken.services.slack.cursor import Room

if TYPE_CHECKING:
    from harken.services.slack import Query

__all__ = [
    "Eye",
    "Telling",
    "attached_text",
    "block_text",
    "defused",
    "is_bots",
    "is_noise",
    "mentioned",
    "permalink",
    "readable",
    "written_text",
]


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


Message = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Eye:
    """What of all messages is wanted. `people` are the ids of those whose mentions count."""

    query: Query
    people: frozenset[str]
    me: Me

    def wants(self, message: Message) -> bool:
        """Whether to tell of it. Decided without names, so that only what is told of costs look-ups."""
        if is_noise(message) or self._is_mine(message) or (self.query.exclude_bots and is_bots(message)):
            return False
        text = written_text(message)
        return self._mentions(text) and self._has_keyword(text)

    def _mentions(self, text: str) -> bool:
        return not self.people or not self.people.isdisjoint(mentioned(text))

    def _has_keyword(self, text: str) -> bool:
        folded = readable(text, _nobody, _nobody).casefold()
        return not self.query.keywords or any(word.casefold() in folded for word in self.query.keywords)

    def _is_mine(self, message: Message) -> bool:
        # whoever answers must not answer itself
        me = self.me
        return (bool(me.user_id) and message.get("user") == me.user_id) or (
            bool(me.bot_id) and message.get("bot_id") == me.bot_id
        )


@dataclass(frozen=True, kw_only=True)
class Telling:
    """Makes events of the messages of one channel. `names` knows people, `rooms` the names of channels."""

    id: str
    room: Room
    me: Me
    names: Callable[[str], str]
    rooms: Callable[[str], str]

    def people_of(self, message: Message) -> list[str]:
        """The ids of those whose names are needed to tell of it."""
        ids = [text_of(message, "user"), *mentioned(written_text(message)), self.room.user]
        return [id for id in ids if id]

    def event(self, message: Message) -> Event:
        """The event. A message whose timestamp is broken has no time and is named by its content."""
        ts = message.get("ts")
        known = ts if is_stamp(ts) else None
        subject = f"{self.id}:{known or _digest(message)}"
        return Event(
            subject=subject,
            type="slack.message",
            occurred_at=moment(known) if known else None,
            data=self._data(subject, known or "", message),
        )

    def _data(self, subject: str, ts: str, message: Message) -> dict[str, Any]:
        raw = written_text(message)
        parent = message.get("thread_ts")
        thread = parent if is_stamp(parent) else ts
        return {
            "id": subject,
            "text": readable(raw, self.names, self.rooms),
            "raw_text": raw,
            "ts": ts,
            "permalink": permalink(self.me.url, self.id, ts, thread) if ts else "",
            "channel": {"id": self.id, "name": self._room_name()},
            "user": self._author(message),
            # the message itself, where there is no thread yet: an answer to it opens one
            "thread_ts": thread,
            "is_thread_reply": bool(ts) and thread != ts,
            "mentions": [{"id": id, "name": self.names(id)} for id in mentioned(raw)],
            "is_bot": is_bots(message),
            "is_dm": bool(self.room.kind),
        }

    def _room_name(self) -> str:
        return f"@{self.names(self.room.user)}" if self.room.kind == "im" else self.room.name

    def _author(self, message: Message) -> dict[str, str]:
        user = text_of(message, "user")
        if user:
            return {"id": user, "name": self.names(user)}
        name = text_of(message, "username") or text_of(message, "bot_profile.name") or ""
        return {"id": text_of(message, "bot_id") or "", "name": name}


def permalink(url: str, channel: str, ts: str, thread: str) -> str:
    """The address of a message; made here, since asking for it costs a call each."""
    address = f"{url}/archives/{channel}/p{ts.replace('.', '')}"
    return address if thread == ts else f"{address}?thread_ts={thread}&cid={channel}"


def _nobody(id: str) -> str:
    return ""


def _digest(message: Message) -> str:
    return "sha256:" + hashlib.sha256(msgspec.json.encode(message, order="deterministic")).hexdigest()[:32]
