"""Requests to the servers from which a machine or container in a cloud gets credentials for itself.

Their addresses are link-local, and `guard` refuses them to everybody: whoever can make a program fetch them gets its
rights. So they are asked only here, for accounts that say so (`metadata: true`), only for credentials, at exactly these
addresses: not through a proxy, not by a name that somebody can let point elsewhere, and never where a redirect leads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import aiohttp
import msgspec

from harken.errors import NeedsAttention, RetryLater

__all__ = ["MetadataReply", "MetadataServer", "ask_metadata"]

MetadataServer = Literal["instance", "container", "pod"]
ADDRESSES: dict[MetadataServer, str] = {
    "instance": "169.254.169.254",
    "container": "169.254.170.2",
    "pod": "169.254.170.23",
}
"""Of a machine at Amazon or Google, of a container in ECS, and of a pod in EKS."""
SECONDS = 5.0
LARGEST = 65_536
_PATH = re.compile(r"/[A-Za-z0-9/_.+=,@~:?&%-]{0,2000}")


class MetadataReply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"<MetadataReply {self.status}>"


async def ask_metadata(
    server: MetadataServer,
    path: str,
    *,
    method: Literal["GET", "PUT"] = "GET",
    headers: Mapping[str, str] | None = None,
) -> MetadataReply:
    """Return the answer, whatever its status. RetryLater when there is none in time, or it is too large.

    A redirect is not followed: NeedsAttention.
    """
    address = ADDRESSES[server]
    if not _PATH.fullmatch(path) or "/../" in path or "//" in path:
        raise NeedsAttention("this is not a path of a metadata server", fix="Check where the credentials come from")
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        # a session for each: keys are renewed once an hour, and nothing of one request is there for the next
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            asking = session.request(method, f"http://{address}{path}", headers=headers, allow_redirects=False)
            async with asking as response:
                body = await _read(response)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        # its own text has the path
        message = f"the metadata server at {address} did not answer ({type(error).__name__})"
        raise RetryLater(message, fix="It is there only on machines of the cloud, and may be turned off") from None
    if 300 <= response.status < 400:
        message = f"the metadata server at {address} answered {response.status}, a redirect, which is not followed"
        raise NeedsAttention(message, fix="Find out who answers there: it is not the cloud")
    return MetadataReply(status=response.status, headers=dict(response.headers), body=body)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for chunk in response.content.iter_chunked(LARGEST):
        body += chunk
        if len(body) > LARGEST:
            raise aiohttp.ClientPayloadError("too large")
    return body
