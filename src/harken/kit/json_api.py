"""A JSON REST API, called in the name of one account: the client that most services need.

    api = JsonApi(host, base_url=account.base_url, headers={"Authorization": …}, fixes={401: "Make a new token"})
    document = api.expect_object(await api.get("/items", {"limit": 100}))

Requests return the reply whatever its status. `check`, `expect_object` and `expect_list` turn a refusal into the error
that says what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from harken.errors import Refused, RetryLater
from harken.http import Reply, Validators, raise_for
from harken.kit.values_from_payload import describe
from harken.source import Host

__all__ = ["JsonApi", "Params", "join_url", "server_time"]

Params: TypeAlias = Mapping[str, str | int] | Sequence[tuple[str, str | int]]


def join_url(base_url: str, *path: str) -> str:
    """A URL below the base. Each part of the path is quoted, so a slash stays within its part; `..` is refused."""
    if any(part in (".", "..") for part in path):
        raise Refused("a part of an address cannot be . or ..", fix="Check the values that the step is given")
    return "/".join((base_url, *(quote(part, safe="") for part in path)))


def server_time(reply: Reply, now: datetime) -> datetime:
    """Return when the server answered, by its own clock; `now` if that is earlier, or the server does not say."""
    try:
        date = parsedate_to_datetime(reply.headers.get("Date", ""))
    except ValueError:
        return now
    return min(now, date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC))


def _merge(defaults: Mapping[str, str | int], params: Params) -> list[tuple[str, str | int]]:
    pairs = list(params.items() if isinstance(params, Mapping) else params)
    given = {name for name, _ in pairs}
    return [*((name, value) for name, value in defaults.items() if name not in given), *pairs]


def _linked_page(reply: Reply) -> str | None:
    return reply.link("next")


class JsonApi:
    """`headers` and `params` go with every request. `fixes` maps a status to the advice that its error carries.

    `refuse(reply, what)` may raise an error of its own before that, for refusals that the status alone does not tell.
    `next_page(reply)` returns the URL of the next page of a list; by default that of the Link header.
    """

    def __init__(
        self,
        host: Host,
        *,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | int] | None = None,
        fixes: Mapping[int, str] | None = None,
        refuse: Callable[[Reply, str], None] | None = None,
        next_page: Callable[[Reply], str | None] = _linked_page,
        follow_redirects: bool = True,
    ) -> None:
        self.host = host
        self.base_url = base_url.rstrip("/")
        self.name = urlsplit(base_url).hostname or base_url
        self.next_page = next_page
        self._headers = {"Accept": "application/json", **(headers or {})}
        self._params = params or {}
        self._fixes = fixes or {}
        self._refuse = refuse
        self._follow_redirects = follow_redirects

    def url(self, *path: str) -> str:
        return join_url(self.base_url, *path)

    async def get(self, where: str, params: Params = (), *, conditional: Validators | None = None) -> Reply:
        return await self.send("GET", where, params=params, conditional=conditional)

    async def send(
        self,
        method: str,
        where: str,
        *,
        params: Params = (),
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        data: object = None,
        conditional: Validators | None = None,
    ) -> Reply:
        """Send one request. `where` is a path below `base_url` that starts with a slash, or a whole URL."""
        return await self.host.request(
            method,
            f"{self.base_url}{where}" if where.startswith("/") else where,
            params=_merge(self._params, params),
            headers={**self._headers, **(headers or {})},
            json=json,
            data=data,
            conditional=conditional,
            follow_redirects=self._follow_redirects,
        )

    def check(self, reply: Reply, what: str = "") -> None:
        """Return if the reply is a success or a 304. Otherwise raise; `what` replaces "GET /path" in the message."""
        if self._refuse is not None:
            self._refuse(reply, what)
        raise_for(reply, what, fix=self._fixes.get(reply.status, ""))

    def expect_object(self, reply: Reply, what: str = "") -> dict[str, Any]:
        """Return the object that the reply holds, or raise."""
        self.check(reply, what)
        document = reply.json()
        if not isinstance(document, dict):
            raise self._unexpected(reply, "is no object", document)
        return document

    def expect_list(self, reply: Reply, what: str = "", *, key: str = "") -> list[Any]:
        """Return the list that the reply is, or has under `key`, or raise: no list is not an empty list."""
        self.check(reply, what)
        document = reply.json()
        found = document if not key else document.get(key) if isinstance(document, dict) else None
        if not isinstance(found, list):
            raise self._unexpected(reply, "has no list" if key else "is no list", document)
        return found

    async def read_list(self, first: Reply, max_pages: int) -> tuple[list[Any], bool]:
        """Read a list from its first page on, following `next_page`. Return its items, and whether those are all."""
        items: list[Any] = []
        reply = first
        for _ in range(max_pages):
            items += self.expect_list(reply)
            following = self.next_page(reply)
            if following is None:
                return items, True
            reply = await self.get(following)
        return items, False

    def _unexpected(self, reply: Reply, problem: str, document: Any) -> RetryLater:
        message = f"{reply.url.host} answered with something that {problem}; {describe(document)}"
        return RetryLater(message, fix="Check base_url")
