"""A web site on loopback whose one page can be written anew, and the source that watches it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from harken.kit.digest import digest_of
from harken.services.page import Page, Query
from harken.source import Batch, Host
from harken.testing.fakes.server import FakeServer, Handler
from tests.services import reading


class Site(FakeServer):
    """Serves `body` as `kind` at /page. With `etags`, it answers 304 to who has it already."""

    body: bytes = b"<p>first</p>"
    kind: str = "text/html; charset=utf-8"
    etags: bool = False

    def routes(self) -> Mapping[str, Handler]:
        return {"/page": self._page}

    def write(self, text: str) -> None:
        self.body = text.encode()

    async def _page(self, request: web.Request) -> web.Response:
        headers = {"Content-Type": self.kind}
        if not self.etags:
            return web.Response(body=self.body, headers=headers)
        tag = f'"{digest_of(self.body)}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304)
        return web.Response(body=self.body, headers={**headers, "ETag": tag})


def watch(site: Site, host: Host, **fields: Any) -> Page:
    return Page(Query.model_validate({"url": f"{site.url}/page", **fields}), host)


async def change(site: Site, source: Page, *texts: str) -> list[Batch]:
    """What each of these texts gives, read one after the other."""
    batches: list[Batch] = []
    for text in texts:
        site.write(text)
        batches.append(await reading.page(source, batches[-1].cursor if batches else None))
    return batches
