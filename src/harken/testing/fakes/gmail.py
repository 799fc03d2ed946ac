"""A mailbox behind Gmail's API: pages newest first, labels, searches, and mail that is listed later than it came."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.policy import SMTP
from typing import Any, Protocol

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.testing.fakes.google_oauth_base import SCOPES, GoogleServer, google_error
from harken.testing.fakes.server import Handler, json_reply

__all__ = ["FakeGmail", "Mail", "Searched", "finder", "written"]


_TOKEN = re.compile(r'\s*(-?(?:\w+:)?"[^"]*"|-?\w+:(?=[({])|-?(?=[({])|[(){}]|[^\s(){}]+)')

_AGES = {"d": 86_400, "m": 2_592_000, "y": 31_536_000}

_PLACES = {"inbox": "INBOX", "sent": "SENT", "drafts": "DRAFT", "trash": "TRASH", "spam": "SPAM"}

_STATES = {"unread": "UNREAD", "starred": "STARRED", "important": "IMPORTANT"}


class Searched(Protocol):
    """What a search can match: `texts` by field, the names and ids of labels, and the time in seconds."""

    texts: Mapping[str, str]
    labels: set[str]
    at: float


Test = Callable[[Any], bool]


def finder(query: str, now: float, names: Mapping[str, str]) -> Test:
    """The search as a function of a mail; `names` has the ids of labels by their names."""
    tokens = [token for token in _TOKEN.findall(query) if token]
    return _group(tokens, "", now, names)


def _group(tokens: list[str], end: str, now: float, names: Mapping[str, str], field: str = "") -> Test:
    """Everything up to `end`: in () all of it, in {} any of it; OR joins its neighbours."""
    tests: list[list[Test]] = []
    joined = False
    while tokens and (token := tokens.pop(0)) != end:
        if token == "OR":
            joined = True
            continue
        test = _term(token, tokens, now, names, field)
        if joined and tests:
            tests[-1].append(test)
        else:
            tests.append([test])
        joined = False
    choose = any if end == "}" else all
    return lambda mail: choose(any(test(mail) for test in either) for either in tests)


def _term(token: str, tokens: list[str], now: float, names: Mapping[str, str], field: str) -> Test:
    if token.startswith("-") and len(token) > 1:
        test = _term(token[1:], tokens, now, names, field)
        return lambda mail: not test(mail)
    if token == "-":
        test = _term(tokens.pop(0), tokens, now, names, field)
        return lambda mail: not test(mail)
    if token in "({":
        return _group(tokens, {"(": ")", "{": "}"}[token], now, names, field)
    name, colon, word = token.partition(":")
    if colon and not word:
        return _group(tokens, {"(": ")", "{": "}"}[tokens.pop(0)], now, names, name.lower())
    return _test(name.lower() if colon else field, (word if colon else token).strip('"').lower(), now, names)


def _test(field: str, word: str, now: float, names: Mapping[str, str]) -> Test:
    if field == "after":
        return lambda mail: mail.at > float(word)
    if field == "newer_than":
        return lambda mail: mail.at > now - int(word[:-1]) * _AGES[word[-1]]
    if field == "is" and word == "read":
        return lambda mail: "UNREAD" not in mail.labels
    if field in ("is", "in", "label"):
        found = (_PLACES | _STATES).get(word) or names.get(word, "no such label")
        return lambda mail: found in mail.labels
    if field in ("from", "to", "subject"):
        return lambda mail: word in mail.texts[field].lower()
    return lambda mail: any(word in text.lower() for text in mail.texts.values())


_HOME = "https://www.googleapis.com/auth/gmail."

_READ = frozenset({f"{_HOME}readonly", f"{_HOME}modify"})

_WRITE = frozenset({f"{_HOME}modify"})

_ROOT = "/gmail/v1/users/me"

_SYSTEM = ("INBOX", "UNREAD", "SENT", "DRAFT", "TRASH", "SPAM", "STARRED", "IMPORTANT")


@dataclass(kw_only=True)
class Mail:
    """A mail in the mailbox. `at` is when it was received, `shown_at` from when on searches find it."""

    id: str
    at: float
    shown_at: float
    raw: bytes
    labels: set[str] = field(default_factory=set)
    snippet: str = ""
    oddities: dict[str, Any] = field(default_factory=dict)

    @property
    def texts(self) -> Mapping[str, str]:
        message = message_from_bytes(self.raw)
        read = {name: str(message.get(name, "")) for name in ("from", "to", "subject")}
        return {**read, "text": self.snippet}


def written(
    subject: str = "hello",
    sender: str = "Ana <ana@example.com>",
    text: str | None = "hello",
    html: str | None = None,
    files: Sequence[tuple[str, bytes]] = (),
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A mail as RFC 5322 bytes."""
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"], message["Subject"] = sender, "me@example.com", subject
    for name, value in (headers or {}).items():
        message[name] = value
    if text is not None:
        message.set_content(text)
    if html is not None and text is None:
        message.set_content(html, subtype="html")
    elif html is not None:
        message.add_alternative(html, subtype="html")
    for name, data in files:
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return message.as_bytes()


class FakeGmail(GoogleServer):
    """`cap` is the longest page of a listing; `got` counts what was got of each mail."""

    def __init__(self, clock: Clock, *, cap: int = 500, scopes: frozenset[str] = SCOPES) -> None:
        super().__init__(clock, scopes=scopes)
        self.cap = cap
        self.mails: dict[str, Mail] = {}
        self.names: dict[str, str] = {}
        self.fetched: dict[str, int] = {}
        self.generation = 0

    def receive(
        self,
        raw: bytes | None = None,
        *,
        labels: Sequence[str] = ("INBOX", "UNREAD"),
        age: float = 0.0,
        late: float = 0.0,
        snippet: str = "",
        **mail: Any,
    ) -> str:
        """Add a mail received `age` seconds ago that searches find in `late` seconds; returns its id."""
        id, now = f"19{len(self.mails):014x}", self.clock.time()
        whole = written(**mail) if raw is None else raw
        short = snippet or str(mail.get("text") or "")[:100]
        self.mails[id] = Mail(id=id, at=now - age, shown_at=now + late, raw=whole, labels=set(labels), snippet=short)
        return id

    def label(self, name: str) -> str:
        """Add a label; returns its id."""
        return self.names.setdefault(name.lower(), f"Label_{len(self.names) + 1}")

    def unread(self) -> list[str]:
        return [mail.id for mail in self.mails.values() if "UNREAD" in mail.labels]

    def mark_all_read(self, ids: Sequence[str]) -> None:
        """Mark mails as read, as another mail program would."""
        for id in ids:
            self.mails[id].labels.discard("UNREAD")

    def forget_pages(self) -> None:
        """Refuse every page token issued so far."""
        self.generation += 1

    def scopes_for(self, method: str, path: str) -> frozenset[str]:
        if not path.startswith("/gmail/"):
            return super().scopes_for(method, path)
        return _READ if method == "GET" else _WRITE

    def routes(self) -> Mapping[str, Handler]:
        return {
            **super().routes(),
            f"{_ROOT}/messages": self._list,
            f"{_ROOT}/messages/{{id}}": self._get,
            f"{_ROOT}/messages/{{id}}/modify": self._modify,
            f"{_ROOT}/labels": self._labels,
        }

    async def _list(self, request: web.Request) -> web.Response:
        params, now = request.query, self.clock.time()
        most, token = int(params.get("maxResults", "100")), params.get("pageToken", "")
        if not 1 <= most <= 500 or (token and not token.startswith(f"{self.generation}.")):
            return google_error(400, "invalidArgument")
        matches = finder(params.get("q", ""), now, self.names)
        hidden = {"SPAM", "TRASH"} if params.get("includeSpamTrash") != "true" else set()
        found = [m for m in self.mails.values() if m.shown_at <= now and not m.labels & hidden and matches(m)]
        found.sort(key=lambda mail: (mail.at, mail.id), reverse=True)
        # an offset, so that pages shift when mails before it are added or deleted
        start = int(token.partition(".")[2] or 0)
        end = start + min(most, self.cap)
        rows = [{"id": mail.id, "threadId": mail.id} for mail in found[start:end]]
        more = {"nextPageToken": f"{self.generation}.{end}"} if end < len(found) else {}
        # the real one leaves the list out when it is empty, and only estimates how long it is
        return json_reply({**({"messages": rows} if rows else {}), **more, "resultSizeEstimate": min(len(found), 201)})

    async def _get(self, request: web.Request) -> web.Response:
        mail, form = self.mails.get(request.match_info["id"]), request.query.get("format", "full")
        if mail is None:
            return google_error(404, "notFound")
        if form not in ("full", "metadata", "minimal"):
            return google_error(400, "invalidArgument")
        self.fetched[mail.id] = self.fetched.get(mail.id, 0) + 1
        fields: dict[str, Any] = {
            "id": mail.id,
            "threadId": mail.id,
            "labelIds": sorted(mail.labels),
            "snippet": mail.snippet.replace("&", "&amp;").replace("'", "&#39;"),
            "sizeEstimate": len(mail.raw),
            "historyId": "7",
            "internalDate": str(round(mail.at * 1000)),
        }
        if form != "minimal":
            fields["payload"] = _payload(message_from_bytes(mail.raw), "", bodies=form == "full")
        return json_reply({**fields, **mail.oddities})

    async def _modify(self, request: web.Request) -> web.Response:
        mail, change = self.mails.get(request.match_info["id"]), msgspec.json.decode(await request.read())
        if mail is None:
            return google_error(404, "notFound")
        if not {*change.get("addLabelIds", ()), *change.get("removeLabelIds", ())} <= {*_SYSTEM, *self.names.values()}:
            return google_error(400, "invalidArgument")
        mail.labels = (mail.labels | set(change.get("addLabelIds", ()))) - set(change.get("removeLabelIds", ()))
        return json_reply({"id": mail.id, "threadId": mail.id, "labelIds": sorted(mail.labels)})

    async def _labels(self, request: web.Request) -> web.Response:
        system = [{"id": name, "name": name, "type": "system"} for name in _SYSTEM]
        return json_reply({"labels": [*system, *({"id": id, "name": name} for name, id in self.names.items())]})


def _payload(part: Message, number: str, *, bodies: bool) -> dict[str, Any]:
    """A part as the API returns it: texts with their content, attachments only with their size."""
    headers = [{"name": name, "value": str(value)} for name, value in part.items()]
    data = b"" if part.is_multipart() else part.get_payload(decode=True) or b""
    filename = part.get_filename() or ""
    body: dict[str, Any] = {"size": len(data)}
    if filename:
        body["attachmentId"] = f"file-{number}"
    elif bodies and data:
        body["data"] = base64.urlsafe_b64encode(bytes(data)).decode()
    fields: dict[str, Any] = {
        "partId": number,
        "mimeType": part.get_content_type(),
        "filename": filename,
        "headers": headers,
        "body": body,
    }
    inner = part.get_payload() if part.is_multipart() else []
    if bodies and isinstance(inner, list) and inner:
        fields["parts"] = [_payload(one, f"{number}.{at}", bodies=True) for at, one in enumerate(inner)]
    return fields
