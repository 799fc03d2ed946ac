"""REST APIs whose lists go on behind a link: requests in the name of one account, and the lists in their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from harken.errors import RetryLater
from harken.http import Reply, Validators
from harken.kit.fields import describe
from harken.source import Host

__all__ = ["RestApi", "address_of", "linked_page"]


def address_of(root: str, *path: str) -> str:
    """An address below the root; whatever is in a part of the path stays within it."""
    return "/".join((root, *(quote(part, safe="") for part in path)))


def linked_page(reply: Reply) -> str | None:
    """Where the list goes on, by the Link header."""
    return reply.link("next")


class RestApi:
    """Requests in the name of one account. Each is answered with the reply, whatever its status is.

    `told(reply, what)` raises what a refusal means, and `next_page(reply)` tells where a list goes on.
    """

    def __init__(
        self,
        host: Host,
        *,
        root: str,
        headers: Mapping[str, str],
        told: Callable[[Reply, str], None],
        next_page: Callable[[Reply], str | None] = linked_page,
    ) -> None:
        self._host = host
        self._root = root
        self._headers = headers
        self.told = told
        self.next_page = next_page
        self.name = urlsplit(root).hostname or root

    def address(self, *path: str) -> str:
        return address_of(self._root, *path)

    async def ask(
        self, url: str, params: Sequence[tuple[str, str | int]] = (), conditional: Validators | None = None
    ) -> Reply:
        return await self._send("GET", url, params=list(params), conditional=conditional)

    async def write(self, method: str, url: str, json: Any = None) -> Reply:
        return await self._send(method, url, json=json)

    def listed(self, reply: Reply, what: str = "") -> list[Any]:
        """The list in an answer."""
        self.told(reply, what)
        document = reply.json()
        if not isinstance(document, list):
            seen = describe(document)
            raise RetryLater(f"{reply.url.host} answered with something that is no list; {seen}", fix="Check base_url")
        return document

    async def rest(self, reply: Reply, most: int) -> tuple[list[Any], bool]:
        """What a list holds from this page on, so many pages at most, and whether that is all of it."""
        found: list[Any] = []
        for _ in range(most):
            found += self.listed(reply)
            following = self.next_page(reply)
            if following is None:
                return found, True
            reply = await self.ask(following)
        return found, False

    async def _send(self, method: str, url: str, **options: Any) -> Reply:
        allowed = self._host.allow_private
        return await self._host.http.request(method, url, headers=self._headers, allow_private=allowed, **options)
