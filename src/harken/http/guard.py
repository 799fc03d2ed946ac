"""Protection against SSRF: which addresses the client may connect to. The check is on the IP address, not on the URL.

A name is resolved, all its addresses are checked, and the connection is made to one of those; so DNS rebinding does not
help. Behind a proxy the proxy resolves names, so only IP addresses in URLs can be checked.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from harken.errors import Refused

__all__ = ["GuardedResolver", "check_address", "check_url", "guarded_sockets", "literal_address", "server_name"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


_METADATA = _networks(
    "169.254.0.0/16",
    "fe80::/10",
    "100.100.100.200/32",
    "192.0.0.192/32",
    "168.63.129.16/32",
    "fd00:ec2::/32",
    "fd20:ce::/32",
)
_PRIVATE = _networks(
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "127.0.0.0/8",
    "100.64.0.0/10",
    "198.18.0.0/15",
    "::1/128",
    "fc00::/7",
)
# ipaddress counts these as ordinary unicast, or did so in some Python versions
_SPECIAL = _networks("0.0.0.0/8", "192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2001:db8::/32", "3fff::/20")
_UNICAST6 = IPv6Network("2000::/3")
_MAPS_TO_IPV4 = _networks("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "::/96")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+)){0,3}", re.IGNORECASE)
_OPT_IN = (
    "If that is meant, set allow_private_networks: true where the address is written: in config: of a job, "
    "in query: of a workflow's poll, in the http step, or on the integration (configure: --allow-private-networks)"
)


def check_address(host: str, address: str | Address, allow_private: bool) -> None:
    """Raise Refused, naming host and address, unless a connection to this address is allowed."""
    try:
        parsed = ip_address(address) if isinstance(address, str) else address
    except ValueError:
        raise Refused(f"{host} has no usable address") from None
    for reached in _effective_addresses(parsed):
        kind, private = _classify(reached)
        if kind and not (private and allow_private):
            raise Refused(f"{host} is at {parsed}, {kind}", fix=_OPT_IN if private else "")


@lru_cache(maxsize=4096)
def literal_address(host: str) -> Address | None:
    """Return the IP address that a host is written as, in any notation that resolvers accept; None for a name."""
    bare = host.rstrip(".")
    try:
        return ip_address(bare)
    except ValueError:
        pass
    if not _NUMERIC.fullmatch(bare):
        return None
    try:
        return IPv4Address(socket.inet_aton(bare))
    except OSError:
        return None


@lru_cache(maxsize=4096)
def check_url(url: str | URL, allow_private: bool, proxied: bool = False) -> URL:
    """Parse a URL and check what can be checked without resolving names. The result is cached, a refusal is not."""
    try:
        target = URL(url)
        host = target.raw_host
        target.port  # noqa: B018  # raises for a port out of range
    except (ValueError, TypeError):
        raise Refused("that is not a valid URL") from None
    if target.scheme not in ("http", "https"):
        raise Refused(f"only http and https URLs can be fetched, not {target.scheme[:20] or 'a relative one'}")
    if not host:
        raise Refused("the URL names no host")
    address = literal_address(host)
    if address is not None:
        check_address(host, address, allow_private)
    elif proxied and not allow_private and (host == "localhost" or host.endswith(".localhost")):
        raise Refused(f"{host} is this machine as the proxy sees it", fix=_OPT_IN)
    return target.with_fragment(None) if target.raw_fragment else target


def server_name(url: URL) -> str:
    """Return the host of a URL for messages, with its port unless that is the default."""
    return url.host_port_subcomponent or "?"


class GuardedResolver(AbstractResolver):
    """Resolve names with another resolver and refuse a name if any of its addresses is refused."""

    def __init__(self, resolver: AbstractResolver, *, allow_private: bool) -> None:
        self._resolver = resolver
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for result in found:
            check_address(host, result["host"], self._allow_private)
        return found

    async def close(self) -> None:
        await self._resolver.close()


def guarded_sockets(allow_private: bool) -> Callable[[Any], socket.socket]:
    """Return a socket factory that checks the address once more, for addresses that did not pass the resolver."""

    def make(info: tuple[Any, Any, Any, str, tuple[Any, ...]]) -> socket.socket:
        family, kind, proto, _, address = info
        check_address(address[0], address[0], allow_private)
        return socket.socket(family, kind, proto)

    return make


def _classify(address: Address) -> tuple[str, bool]:
    """Return why an address is not allowed (empty when it is), and whether allow_private permits it."""
    if _within(address, _METADATA):
        return "a link-local or metadata address, which is never allowed", False
    if _within(address, _PRIVATE):
        return "a private address", True
    odd = address.is_multicast or not address.is_global or _within(address, _SPECIAL)
    if odd or (isinstance(address, IPv6Address) and address not in _UNICAST6):
        return "not a public address", False
    return "", False


def _effective_addresses(address: Address) -> list[Address]:
    """Return the addresses to check: for an IPv6 address that maps or tunnels to IPv4, also that IPv4 address."""
    if not isinstance(address, IPv6Address) or address.is_loopback:
        return [address]
    if _within(address, _MAPS_TO_IPV4):
        return [IPv4Address(int(address) & 0xFFFFFFFF)]
    if address.sixtofour:
        # the range itself is private by some versions of Python, and public by others
        return [address.sixtofour]
    return [address, *(address.teredo or ())]


def _within(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)
