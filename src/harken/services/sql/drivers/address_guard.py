"""Connections to database servers, guarded like those of the HTTP client: the address that a name leads to is checked.

Databases are in private networks, so these are allowed. Link-local and metadata addresses never are.
"""

from __future__ import annotations

import asyncio
from typing import Any

from harken.kit.sockets import allowed_addresses

__all__ = ["GuardedLoop", "checked_addresses"]


async def checked_addresses(host: str, port: int) -> list[str]:
    """The addresses of a host. Raise Refused when one of them is not allowed."""
    found = await asyncio.to_thread(allowed_addresses, host, port, allow_private=True)
    return [str(address) for address, *_ in found]


class GuardedLoop:
    """The running event loop as a driver sees it, except that it connects only to checked addresses of a host.

    The driver still knows the host by its name, so TLS checks the certificate for that name.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, protocol: Any, host: str, port: int) -> Any:
        problem: OSError = OSError("no address")
        for address in await checked_addresses(host, port):
            try:
                return await self._loop.create_connection(protocol, address, port)
            except OSError as error:
                problem = error
        raise problem
