"""How /admin answers when something is wrong: `{"error": …}`, with few statuses, as programs of before expect it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from harken.api.errors import retry_after
from harken.errors import HarkenError, NotFound, RetryLater

__all__ = ["error", "error_of", "is_admin"]


def is_admin(path: str) -> bool:
    return path == "/admin" or path.startswith("/admin/")


def error_of(found: HarkenError) -> Response:
    """404 for what is not there, 503 for what may work later, 400 for all else that cannot be done."""
    status = 404 if isinstance(found, NotFound) else 503 if isinstance(found, RetryLater) else 400
    return error(status, found.message, found.fix, code=found.code, headers=retry_after(found))


def error(
    status: int, message: str, fix: str = "", *, code: str = "refused", headers: Mapping[str, str] | None = None
) -> Response:
    """`fix` and `code` say more to the command line; whoever knows only `error` misses nothing of what happened."""
    body = {"error": message, "fix": fix, "code": code}
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
