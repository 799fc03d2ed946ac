"""The HTTP client that every service uses, so that limits, the address guard and errors are the same everywhere."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from harken import __version__
from harken.clock import Clock
from harken.errors import Misconfigured, NeedsAttention, RetryLater
from harken.http.connectivity import Connectivity
from harken.http.error_translation import FAILURES, translate_error
from harken.http.guard import GuardedResolver, check_url, guarded_sockets, server_name
from harken.http.redirects import REDIRECTS, Hop, next_hop, same_server
from harken.http.replies import Reply, Validators, raise_for

__all__ = ["Client", "HttpSettings", "RequestLimiter"]

T = TypeVar("T")
Params = Mapping[str, str | int] | Sequence[tuple[str, str | int]] | None

_BODILESS = frozenset({204, 304})


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of all requests. Behind a proxy, which resolves names, the guard checks only IP addresses in URLs."""

    proxy: str | None = None
    ca_bundle: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    connect_seconds: float = 5.0
    total_seconds: float = 10.0
    max_bytes: int = 32_000_000
    max_redirects: int = 5
    user_agent: str = f"Harken/{__version__}"
    connections: int = 512
    connections_per_host: int = 64
    dns_cache_seconds: int = 10


class RequestLimiter(Protocol):
    """What the client uses of `harken.outgoing_rate_limit.RateLimit`: wait for a turn, learn from the response."""

    async def take(self, who: str = "", cost: int = 1, *, patience: float | None = None) -> None: ...

    def learn(self, headers: Mapping[str, str], status: int) -> None: ...


class Client:
    """Makes requests on shared connections; call `close` at the end. `resolver` replaces DNS and is guarded too.

    `connectivity` is told which hosts answer; clients of one process share it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        settings: HttpSettings | None = None,
        resolver: AbstractResolver | None = None,
        connectivity: Connectivity | None = None,
    ) -> None:
        self.clock = clock
        self.connectivity = connectivity or Connectivity(clock)
        self._settings = settings or HttpSettings()
        self._resolver = resolver
        # by allow_private: a pooled connection to a private address must not serve other callers
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        # streams take no place among the connections that requests share
        self._stream_sessions: dict[bool, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        sessions = [*self._sessions.values(), *self._stream_sessions.values()]
        self._sessions.clear()
        self._stream_sessions.clear()
        for session in sessions:
            await session.close()

    async def request(
        self,
        method: str,
        url: str | URL,
        *,
        headers: Mapping[str, str] | None = None,
        params: Params = None,
        json: Any = None,
        data: object = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
        allow_private: bool = False,
        rate_limit: RequestLimiter | None = None,
        who: str = "",
        patience: float | None = None,
        conditional: Validators | None = None,
        follow_redirects: bool = True,
    ) -> Reply:
        """Return the complete response, whatever its status (see `raise_for`).

        Raises RetryLater when there was none, Refused when the address is not allowed, NeedsAttention if a person must
        act. `timeout` covers connecting, redirects and the body; waiting for the rate limit comes before it.
        """
        settings = self._settings
        proxied = settings.proxy is not None
        hop = _first_hop(method, check_url(url, allow_private, proxied), headers, params, json, data, conditional)
        first_url = hop.url
        if rate_limit is not None:
            await rate_limit.take(who, patience=patience)
        seconds, cap = timeout or settings.total_seconds, max_bytes or settings.max_bytes
        deadline = asyncio.get_running_loop().time() + seconds
        for redirects in range(settings.max_redirects + 1):
            left = deadline - asyncio.get_running_loop().time() if redirects else seconds
            status, got, body = await self._exchange(hop, left, cap, allow_private)
            if rate_limit is not None and (hop.url is first_url or same_server(first_url, hop.url)):
                rate_limit.learn(got, status)
            if status not in REDIRECTS or not follow_redirects or "Location" not in got:
                return Reply(hop.method, hop.url, status, got, body, self.clock.time(), conditional)
            hop = next_hop(hop, status, got["Location"])
            check_url(hop.url, allow_private, proxied)
        raise self._redirects_too_often(first_url)

    async def open_stream(
        self, url: str | URL, *, headers: Mapping[str, str] | None = None, allow_private: bool = False
    ) -> aiohttp.ClientResponse:
        """Send a GET and return the response once its headers are there. The caller reads its body and closes it.

        Redirects are followed as by `request`. Only connecting and the headers have a time limit.
        """
        proxied = self._settings.proxy is not None
        hop = Hop(method="GET", url=check_url(url, allow_private, proxied), headers=headers or {})
        first_url = hop.url
        for _ in range(self._settings.max_redirects + 1):
            session = self._stream_sessions.get(allow_private) or self._open(allow_private, streams=True)
            opening = session.get(hop.url, headers=hop.headers, allow_redirects=False, timeout=self._endless())
            response = await self._opened(opening, hop.url, allow_private)
            if response.status not in REDIRECTS or "Location" not in response.headers:
                return response
            response.close()
            hop = next_hop(hop, response.status, response.headers["Location"])
            check_url(hop.url, allow_private, proxied)
        raise self._redirects_too_often(first_url)

    async def open_websocket(
        self,
        url: str | URL,
        *,
        headers: Mapping[str, str] | None = None,
        allow_private: bool = False,
        max_bytes: int,
        protocols: Sequence[str] = (),
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket, which the caller closes; `url` is an http or https address. No redirect is followed.

        The caller answers pings, and sends its own: what is received has them and their answers too.
        Raises what `request` does, and NeedsAttention or RetryLater when the server answers with something else.
        """
        target = check_url(url, allow_private, self._settings.proxy is not None)
        session = self._stream_sessions.get(allow_private) or self._open(allow_private, streams=True)
        opening = session.ws_connect(
            target,
            headers=headers,
            protocols=protocols,
            max_msg_size=max_bytes,
            autoping=False,
            timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
        )
        try:
            return await self._opened(opening, target, allow_private)
        except _Handshake as error:
            answered = CIMultiDictProxy(CIMultiDict(error.headers))
            raise_for(Reply("GET", target, error.status, answered, b"", self.clock.time()), "the WebSocket handshake")
            raise RetryLater(f"{server_name(target)} did not complete the WebSocket handshake") from None

    async def _opened(self, opening: Awaitable[T], url: URL, allow_private: bool) -> T:
        seconds = self._settings.total_seconds
        try:
            async with asyncio.timeout(seconds):
                opened = await opening
        except aiohttp.WSServerHandshakeError as error:
            raise _Handshake(error.status, error.headers or {}) from None
        except FAILURES as error:
            raise translate_error(error, url, seconds, private=allow_private) from None
        self.connectivity.answered(url.host or "", private=allow_private)
        return opened

    def _endless(self) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_seconds)

    def _redirects_too_often(self, url: URL) -> NeedsAttention:
        message = f"{server_name(url)} redirects more than {self._settings.max_redirects} times"
        return NeedsAttention(message, fix="Check the address")

    async def _exchange(
        self, hop: Hop, seconds: float, cap: int, allow_private: bool
    ) -> tuple[int, CIMultiDictProxy[str], bytes]:
        session = self._sessions.get(allow_private) or self._open(allow_private)
        limits = _timeout(max(seconds, 0.001), self._settings.connect_seconds)
        try:
            response = await session.request(
                hop.method, hop.url, headers=hop.headers, data=hop.data, allow_redirects=False, timeout=limits
            )
            try:
                body = await _read(response, cap)
            except BaseException:
                response.close()
                raise
        except FAILURES as error:
            # not chained: aiohttp's message contains the query string, and tracebacks print the cause
            raise translate_error(error, hop.url, seconds, private=allow_private) from None
        self.connectivity.answered(hop.url.host or "", private=allow_private)
        return response.status, response.headers, body

    def _open(self, allow_private: bool, *, streams: bool = False) -> aiohttp.ClientSession:
        settings = self._settings
        resolver = self._resolver or aiohttp.ThreadedResolver()
        guarded = settings.proxy is None
        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(resolver, allow_private=allow_private) if guarded else resolver,
            socket_factory=guarded_sockets(allow_private) if guarded else None,
            ssl=_tls(settings) or True,
            limit=0 if streams else settings.connections,
            limit_per_host=0 if streams else settings.connections_per_host,
            ttl_dns_cache=settings.dns_cache_seconds,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            # cookies of one credential must not be sent with another
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": settings.user_agent},
            proxy=settings.proxy,
            trace_configs=[_no_redirects()] if streams else None,
        )
        (self._stream_sessions if streams else self._sessions)[allow_private] = session
        return session


class _Handshake(Exception):
    """The server answered a WebSocket handshake with another status."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers


def _no_redirects() -> aiohttp.TraceConfig:
    """aiohttp would follow the redirect of a WebSocket handshake, and send our headers to another server."""

    async def refuse(session: Any, context: Any, redirect: aiohttp.TraceRequestRedirectParams) -> None:
        message = f"{server_name(redirect.url)} redirects the WebSocket handshake, which is not followed"
        raise NeedsAttention(message, fix="Use the address it redirects to")

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace


async def _read(response: aiohttp.ClientResponse, cap: int) -> bytes:
    if response.method == "HEAD" or response.status in _BODILESS:
        return await response.read()
    length = response.content_length
    if length is not None and "Content-Encoding" not in response.headers:
        if length > cap:
            raise _too_large(response, cap)
        return await response.read()
    size, chunks = 0, []
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > cap:
            raise _too_large(response, cap)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(response: aiohttp.ClientResponse, cap: int) -> RetryLater:
    message = f"{server_name(response.url)} sent more than {cap:,} bytes in one answer"
    return RetryLater(message, fix="Narrow what is asked for")


def _first_hop(
    method: str,
    url: URL,
    headers: Mapping[str, str] | None,
    params: Params,
    json: Any,
    data: object,
    conditional: Validators | None,
) -> Hop:
    if params:
        url = url.extend_query(params)
    sent: Mapping[str, str] = headers or {}
    if json is not None:
        data, sent = msgspec.json.encode(json), {"Content-Type": "application/json", **sent}
    if conditional is not None:
        if conditional.etag:
            sent = {**sent, "If-None-Match": conditional.etag}
        if conditional.last_modified:
            sent = {**sent, "If-Modified-Since": conditional.last_modified}
    return Hop(method=method.upper(), url=url, headers=sent, data=data)


@lru_cache(maxsize=64)
def _timeout(seconds: float, connect: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=min(connect, seconds))


def _tls(settings: HttpSettings) -> ssl.SSLContext | None:
    if not (settings.ca_bundle or settings.client_cert):
        return None
    context = ssl.create_default_context()
    try:
        if settings.ca_bundle:
            context.load_verify_locations(settings.ca_bundle)
        if settings.client_cert:
            context.load_cert_chain(settings.client_cert, settings.client_key)
    except OSError as error:
        raise Misconfigured("http.ca_bundle or http.client_cert cannot be read", fix="Check the path") from error
    return context
