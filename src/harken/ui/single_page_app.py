"""Serves the UI: its files, and its one HTML page for every address that a browser opens."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from harken.ui.files import File, Files

__all__ = ["POLICY", "Pages"]

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
FOR_EVER = "public, max-age=31536000, immutable"
ASSETS = "/assets/"


class Pages:
    """An ASGI application in front of another: it takes what is a page or a file of the UI, and passes on the rest.

    Nothing below `others` is ever a page, whoever asks for it.
    """

    def __init__(self, app: ASGIApp, others: Collection[str]) -> None:
        self._app = app
        self._others = tuple(others)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._answer(scope) if scope["type"] == "http" else None
        await (found or self._app)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        path: str = scope["path"]
        if scope["method"] not in ("GET", "HEAD") or self._is_other(path):
            return None
        headers, files = Headers(scope=scope), all_files()
        if path.startswith(ASSETS):
            file = files.get(path.removeprefix(files.prefix)) if path.startswith(files.prefix) else None
            return _response(file, headers, FOR_EVER) if file is not None else _gone()
        if path == "/" or _wants_page(headers):
            return _response(files.shell(path), headers, "no-cache", {"content-security-policy": POLICY})
        return None

    def _is_other(self, path: str) -> bool:
        return any(path == other or path.startswith(f"{other}/") for other in self._others)


@cache
def all_files() -> Files:
    """The files of this installation, read when the first browser comes."""
    return Files()


def _wants_page(headers: Headers) -> bool:
    return headers.get("sec-fetch-mode") == "navigate" or "text/html" in headers.get("accept", "")


def _gone() -> Response:
    # a page of an earlier version asks for its files: it has to load anew
    return Response("This file belongs to another version of Harken. Load the page again.\n", 404, SAFE)


def _response(file: File, headers: Headers, caching: str, more: dict[str, str] | None = None) -> Response:
    fixed = {**SAFE, "cache-control": caching, "etag": file.etag, "vary": "accept-encoding", **(more or {})}
    tags = {tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")}
    if file.etag in tags:
        return Response(status_code=304, headers=fixed)
    if file.packed and "gzip" in headers.get("accept-encoding", ""):
        return Response(file.packed, headers={**fixed, "content-encoding": "gzip"}, media_type=file.type)
    return Response(file.body, headers=fixed, media_type=file.type)
