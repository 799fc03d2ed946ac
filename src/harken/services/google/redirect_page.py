"""The page on this machine where a browser lands after the consent: it takes one answer, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from harken.errors import HarkenError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Landing", "landing"]

_DONE = "Harken has the consent. You may close this page."
_DENIED = "Harken was not given the consent. You may close this page."
_STRANGE = "This is not the answer that Harken waits for. Use the newest page, or start again."
_QUIET = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


class Landing:
    """`code` is what the right answer brought. Wrong ones are refused, and the waiting goes on."""

    def __init__(self) -> None:
        self.address = ""
        self.code: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._read: Callable[[Mapping[str, str]], str | None] = lambda answer: None

    def expect(self, read: Callable[[Mapping[str, str]], str | None]) -> None:
        """`read` finds the code in an answer: None when it is not for us, an error when the user said no."""
        self._read = read

    async def arrive(self, request: web.Request) -> web.Response:
        from aiohttp import web

        try:
            code = self._read(request.query)
        except HarkenError as error:
            self._settle(error)
            return web.Response(text=_DENIED, headers=_QUIET)
        if code is None:
            return web.Response(status=400, text=_STRANGE, headers=_QUIET)
        self._settle(code)
        return web.Response(text=_DONE, headers=_QUIET)

    def _settle(self, outcome: str | HarkenError) -> None:
        if self.code.done():
            return
        if isinstance(outcome, HarkenError):
            self.code.set_exception(outcome)
        else:
            self.code.set_result(outcome)


@asynccontextmanager
async def landing() -> AsyncIterator[Landing]:
    """A page on a free port of this machine, until the block ends."""
    from aiohttp import web

    found, app = Landing(), web.Application()
    app.router.add_get("/", found.arrive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.address = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        yield found
    finally:
        await runner.cleanup()
        found.code.cancel()
