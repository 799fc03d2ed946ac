"""A Slack workspace on loopback: the Web API with its limits, scopes and peculiarities.

Errors come with status 200. `oldest` without `latest` starts at the old end. A reply is in no history, only in its
parent's `latest_reply`. Timestamps have six decimals and are unique within a channel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import format_datetime
from typing import Any

import msgspec
from aiohttp import web

from harken.clock import Clock, from_unix
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["Channel", "FakeSlack", "Message", "Said", "between", "is_broadcast", "listed"]


_ENDS = (("oldest", "0.000000"), ("latest", "99999999999.999999"))


class Said(Exception):
    """`ok: false`, with a code."""

    def __init__(self, code: str, **more: str) -> None:
        super().__init__(code)
        self.body = {"ok": False, "error": code, **more}


@dataclass
class Message:
    micros: int
    visible_at: float
    fields: dict[str, Any]
    thread: str = ""

    @property
    def ts(self) -> str:
        return f"{self.micros // 1_000_000}.{self.micros % 1_000_000:06d}"

    def to_json(self, replies: Sequence[Message], left_out: Iterable[str]) -> dict[str, Any]:
        """The message as the API returns it; a parent has fields about its replies, a reply about its parent."""
        kept = {name: value for name, value in self.fields.items() if name not in left_out}
        about: dict[str, Any] = {}
        if replies:
            latest = max(replies, key=lambda one: one.micros).ts
            about = {"thread_ts": self.ts, "reply_count": len(replies), "latest_reply": latest}
        elif self.thread:
            about = {"thread_ts": self.thread, "parent_user_id": "U1"}
        return {"type": "message", "ts": self.ts, **kept, **about}


@dataclass
class Channel:
    id: str
    name: str
    kind: str
    member: bool
    user: str = ""
    archived: bool = False
    messages: dict[str, Message] = field(default_factory=dict)


def is_broadcast(message: Message) -> bool:
    return message.fields.get("subtype") == "thread_broadcast"


def listed(channel: Channel) -> dict[str, Any]:
    if channel.kind == "im":
        return {"id": channel.id, "is_im": True, "user": channel.user}
    common = {"id": channel.id, "name": channel.name, "is_channel": True, "is_member": channel.member}
    return {**common, "is_mpim": channel.kind == "mpim", "is_private": channel.kind != "public_channel"}


def between(messages: Iterable[Message], params: Mapping[str, Any]) -> list[Message]:
    low, high = (int(params.get(name, default).replace(".", "")) for name, default in _ENDS)
    edge = 0 if params.get("inclusive") == "true" else 1
    return [one for one in messages if low + edge <= one.micros <= high - edge]


TOKEN = "xoxb-fake-bot-token"

SCOPES = frozenset(
    f"{kind}:{right}" for kind in ("channels", "groups", "im", "mpim") for right in ("history", "read")
) | {"users:read", "chat:write"}

ME, MY_BOT = "U0BOT", "B0BOT"

_SCOPE_OF = {"public_channel": "channels", "private_channel": "groups", "im": "im", "mpim": "mpim"}

_TS = re.compile(r"[0-9]{1,11}\.[0-9]{6}")

MOST = 999


@dataclass
class Limit:
    calls: int
    retry_after: int
    quietly: bool


class FakeSlack(FakeServer):
    """Change it with `say`, `edit`, `delete`; `cap` is the largest page, `skew` how far its clock is off."""

    def __init__(self, clock: Clock, *, cap: int = MOST, skew: float = 0.0) -> None:
        super().__init__(clock)
        self.cap = cap
        self.skew = skew
        self.token = TOKEN
        self.revoked = ""
        self.scopes = set(SCOPES)
        self.users: dict[str, dict[str, Any]] = {}
        self.channels: dict[str, Channel] = {}
        self.forgets_cursors = False
        self.dates = True
        self._limits: dict[str, Limit] = {}
        self.user("harken", id=ME, bot=True)

    def user(self, name: str, *, id: str = "", display_name: str = "", real_name: str = "", bot: bool = False) -> str:
        """Add a user; returns the id."""
        id = id or f"U{len(self.users)}"
        profile = {"display_name": display_name, "real_name": real_name}
        self.users[id] = {"id": id, "name": name, "real_name": real_name, "profile": profile, "deleted": False}
        self.users[id] |= {"is_bot": bot, "tz": "Europe/Berlin"}
        return id

    def channel(self, name: str, *, id: str = "", member: bool = True, kind: str = "public_channel") -> str:
        """Add a channel; returns its id."""
        id = id or f"C{len(self.channels) + 1}"
        self.channels[id] = Channel(id, name, kind, member)
        return id

    def dm(self, user: str, *, id: str = "") -> str:
        """Open a direct conversation with the bot; returns its id."""
        id = id or f"D{len(self.channels) + 1}"
        self.channels[id] = Channel(id, "", "im", True, user=user)
        return id

    def say(
        self,
        channel: str,
        text: str = "hi",
        *,
        user: str = "U1",
        thread: str = "",
        late: float = 0.0,
        age: float = 0.0,
        **fields: Any,
    ) -> str:
        """Add a message written `age` seconds ago and visible in `late` seconds; returns its timestamp."""
        place = self.channels[channel]
        micros = round((self.clock.time() + self.skew - age) * 1_000_000)
        while f"{micros // 1_000_000}.{micros % 1_000_000:06d}" in place.messages:
            micros += 1
        message = Message(micros, self.clock.time() + late, {"user": user, "text": text, **fields}, thread)
        place.messages[message.ts] = message
        return message.ts

    def broadcast(self, channel: str, text: str, *, thread: str, **fields: Any) -> str:
        """Add a reply that is also visible in the channel."""
        return self.say(channel, text, thread=thread, subtype="thread_broadcast", **fields)

    def edit(self, channel: str, ts: str, text: str) -> None:
        edited = {"user": "U1", "ts": ts}
        self.channels[channel].messages[ts].fields |= {"text": text, "edited": edited}

    def delete(self, channel: str, ts: str) -> None:
        """Delete a message; one with replies leaves a tombstone."""
        messages = self.channels[channel].messages
        if any(message.thread == ts for message in messages.values()):
            messages[ts].fields = {"user": "USLACKBOT", "text": "This message was deleted.", "subtype": "tombstone"}
        else:
            del messages[ts]

    def limit(self, method: str, calls: int = 1, retry_after: int = 30, *, quietly: bool = False) -> None:
        """Rate-limit the next calls of the method: 429, or if `quietly`, `ok: false` with status 200."""
        self._limits[method] = Limit(calls, retry_after, quietly)

    def calls(self, method: str) -> int:
        return sum(1 for seen in self.seen if seen.path == f"/{method}")

    def routes(self) -> Mapping[str, Handler]:
        methods: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "auth.test": self._auth,
            "conversations.list": self._list,
            "conversations.history": self._history,
            "conversations.replies": self._replies,
            "users.list": self._people,
            "users.info": self._person,
            "chat.postMessage": self._post,
        }
        return {f"/{name}": self._method(name, act) for name, act in methods.items()}

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        limit = self._limits.get(request.path[1:])
        if limit is None or limit.calls <= 0:
            return await view(request)
        limit.calls -= 1
        headers = {"Retry-After": str(limit.retry_after)}
        return json_reply({"ok": False, "error": "ratelimited"}, 200 if limit.quietly else 429, headers)

    def _method(self, name: str, act: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Handler:
        async def view(request: web.Request) -> web.Response:
            params = msgspec.json.decode(await request.read()) if request.method == "POST" else request.query
            try:
                self._admit(request)
                body = {"ok": True, **act(params)}
            except Said as said:
                body = said.body
            return json_reply(body, headers=self._headers())

        return view

    def _headers(self) -> dict[str, str]:
        date = format_datetime(from_unix(self.clock.time() + self.skew), usegmt=True)
        return {"X-OAuth-Scopes": ",".join(sorted(self.scopes)), **({"Date": date} if self.dates else {})}

    def _admit(self, request: web.Request) -> None:
        given = request.headers.get("Authorization", "")
        if not given.startswith("Bearer "):
            raise Said("not_authed")
        if self.revoked:
            raise Said(self.revoked)
        if given != f"Bearer {self.token}":
            raise Said("invalid_auth")

    def _need(self, scope: str) -> None:
        if scope not in self.scopes:
            raise Said("missing_scope", needed=scope, provided=",".join(sorted(self.scopes)))

    def _auth(self, params: Mapping[str, Any]) -> dict[str, Any]:
        team = {"url": "https://acme.slack.com/", "team": "Acme", "team_id": "T1"}
        return {**team, "user": self.users[ME]["name"], "user_id": ME, "bot_id": MY_BOT}

    def _list(self, params: Mapping[str, Any]) -> dict[str, Any]:
        kinds = params.get("types", "public_channel").split(",")
        for kind in kinds:
            self._need(f"{_SCOPE_OF[kind]}:read")
        rows = [
            listed(one)
            for one in self.channels.values()
            if one.kind in kinds and (one.member or one.kind == "public_channel") and not one.archived
        ]
        return self._paged("channels", rows, params)

    def _people(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self._need("users:read")
        return self._paged("members", list(self.users.values()), params)

    def _person(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self._need("users:read")
        if params.get("user") not in self.users:
            raise Said("user_not_found")
        return {"user": self.users[params["user"]]}

    def _paged(self, name: str, rows: list[Any], params: Mapping[str, Any]) -> dict[str, Any]:
        start, size = int(self._cursor(params, "at:") or 0), self._size(params)
        following = f"at:{start + size}" if start + size < len(rows) else ""
        return {name: rows[start : start + size], "response_metadata": {"next_cursor": following}}

    def _history(self, params: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._open(params)
        top = [one for one in self._visible(channel) if not one.thread or is_broadcast(one)]
        forward = "oldest" in params and "latest" not in params
        within = sorted(between(top, params), key=lambda one: one.micros, reverse=not forward)
        page, following = self._window(within, params)
        page.sort(key=lambda one: one.micros, reverse=True)
        messages = self._to_json(channel, page, params)
        return {"messages": messages, "has_more": bool(following), "response_metadata": {"next_cursor": following}}

    def _replies(self, params: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._open(params)
        parent = channel.messages.get(params.get("ts", ""))
        if parent is None:
            raise Said("thread_not_found")
        replies = [one for one in self._visible(channel) if one.thread == parent.ts]
        within = sorted(between(replies, params), key=lambda one: one.micros)
        page, following = self._window(within, params)
        messages = self._to_json(channel, [parent, *page], params)
        return {"messages": messages, "has_more": bool(following), "response_metadata": {"next_cursor": following}}

    def _post(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self._need("chat:write")
        channel = self.channels.get(params["channel"])
        if channel is None:
            raise Said("channel_not_found")
        if not channel.member:
            raise Said("not_in_channel")
        if channel.archived:
            raise Said("is_archived")
        if not params.get("text") and not params.get("blocks"):
            raise Said("no_text")
        text, thread = params.get("text", ""), params.get("thread_ts") or ""
        kept: dict[str, Any] = {name: params[name] for name in ("blocks", "metadata") if name in params}
        if thread and params.get("reply_broadcast"):
            kept["subtype"] = "thread_broadcast"
        ts = self.say(channel.id, text, user=ME, thread=thread, bot_id=MY_BOT, **kept)
        return {"channel": channel.id, "ts": ts, "message": {"text": text, "ts": ts}}

    def _open(self, params: Mapping[str, Any]) -> Channel:
        channel = self.channels.get(params.get("channel", ""))
        if channel is None or (not channel.member and channel.kind != "public_channel"):
            raise Said("channel_not_found")
        self._need(f"{_SCOPE_OF[channel.kind]}:history")
        if not channel.member:
            raise Said("not_in_channel")
        for name in ("oldest", "latest"):
            if name in params and not _TS.fullmatch(params[name]):
                raise Said(f"invalid_ts_{name}")
        return channel

    def _visible(self, channel: Channel) -> list[Message]:
        now = self.clock.time()
        return [one for one in channel.messages.values() if one.visible_at <= now]

    def _window(self, messages: list[Message], params: Mapping[str, Any]) -> tuple[list[Message], str]:
        """One page, starting at the message that the cursor names, so new messages do not shift the pages."""
        after = self._cursor(params, "next_ts:")
        start = next((n for n, one in enumerate(messages) if one.ts == after), 0) if after else 0
        end = start + self._size(params)
        return messages[start:end], f"next_ts:{messages[end].ts}" if end < len(messages) else ""

    def _cursor(self, params: Mapping[str, Any], start: str) -> str:
        cursor = params.get("cursor", "")
        if cursor and (self.forgets_cursors or not cursor.startswith(start)):
            raise Said("invalid_cursor")
        return str(cursor.removeprefix(start))

    def _size(self, params: Mapping[str, Any]) -> int:
        size = int(params.get("limit", 100))
        if not 0 < size <= MOST:
            raise Said("invalid_limit")
        return min(size, self.cap)

    def _to_json(self, channel: Channel, page: list[Message], params: Mapping[str, Any]) -> list[dict[str, Any]]:
        replies: dict[str, list[Message]] = {}
        for one in self._visible(channel):
            replies.setdefault(one.thread, []).append(one)
        left_out = () if params.get("include_all_metadata") == "true" else ("metadata",)
        return [one.to_json(replies.get(one.ts, []), left_out) for one in page]
