"""Apprise: more than a hundred services by a URL each (https://github.com/caronc/apprise/wiki).

Apprise makes its own connections, in its own threads, and returns only whether it worked. The HTTP status of a refusal
is an argument of its log records; without one, the message is tried again. Every connection of its threads is checked
by an audit hook of Python at the moment it is made, so a name that leads elsewhere a moment later does not help.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from pydantic import Field, SecretStr, model_validator

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.extras import how_to_install
from harken.http.guard import check_address
from harken.kit import AccountModel, configure_hint
from harken.kit.message_text import one_line, title_and_text
from harken.source import Host, Message, Plugin

if TYPE_CHECKING:
    from apprise import Apprise, NotifyBase

__all__ = ["Account", "AppriseDestination", "plugin"]

CONFIGURE = configure_hint("apprise")
INSTALL = how_to_install("apprise")
DEFAULT = "default"
_TEMPORARY = frozenset({408, 425, 429})
_DIALLING = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_statuses: ContextVar[list[int] | None] = ContextVar("apprise_statuses", default=None)
_connections: ContextVar[_ConnectionGuard | None] = ContextVar("apprise_connections", default=None)


class Account(AccountModel):
    """URLs of Apprise by the names that `to` may have. They contain credentials, so steps name them only."""

    url: SecretStr | None = Field(None, description="a URL of Apprise; its name is `default`")
    urls: dict[str, SecretStr] = Field(default_factory=dict, description="more of them, by name")

    @model_validator(mode="after")
    def _has_url(self) -> Account:
        if self.url is None and not self.urls:
            raise ValueError("give a url, or urls by name")
        if self.url is not None and DEFAULT in self.urls:
            raise ValueError("`default` is the name of url")
        return self

    def url_of(self, name: str) -> str | None:
        found = self.url if name in ("", DEFAULT) and self.url is not None else self.urls.get(name)
        return None if found is None else found.get_secret_value().strip()


class AppriseDestination:
    """Sends through Apprise. It has no idempotency key: a message whose answer was lost can appear twice."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        url = self._account.url_of(message.to.strip())
        if url is None:
            known = ", ".join(sorted({*self._account.urls, *([DEFAULT] if self._account.url else [])}))
            raise NeedsAttention("`to` is not the name of one of Apprise's URLs", fix=f"Write one of: {known}")
        title, body = _title_and_body(message)
        # importing Apprise and its plugins takes half a second
        sender, service = await asyncio.to_thread(_build_sender, url)
        await self._guard(service)
        statuses: list[int] = []
        guard = _ConnectionGuard(self._host.allow_private, await asyncio.to_thread(_proxy_addresses))
        # Apprise copies the context into its threads
        tokens = _statuses.set(statuses), _connections.set(guard)
        try:
            result = await sender.async_notify(body=body, title=title, body_format=_text_format())
        finally:
            _statuses.reset(tokens[0])
            _connections.reset(tokens[1])
        if guard.refusal is not None:
            raise NeedsAttention(guard.refusal.message, fix=guard.refusal.fix or "Correct the URL")
        if not result:
            raise _refusal(service.service_name, statuses)
        return {"service": str(service.service_name)}

    async def _guard(self, service: NotifyBase) -> None:
        """Refuse private addresses before anything is sent, with a message that names the host."""
        host = service.host
        # in a URL without a host, most plugins have a token in its place, which must not be sent to a name server
        if not isinstance(host, str) or not host or "host" not in service.template_tokens:
            return
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise RetryLater(
                "the host in the URL of Apprise is not known", fix="Correct the URL if this persists"
            ) from None
        try:
            for *_, where in found:
                check_address(host, str(where[0]), self._host.allow_private)
        except Refused as error:
            raise NeedsAttention(error.message, fix=error.fix or "Correct the URL") from None


class _ConnectionGuard:
    """Checks the address of each connection that is made for one message, and remembers the refusal."""

    def __init__(self, allow_private: bool, proxies: Collection[tuple[str, int]]) -> None:
        self.refusal: Refused | None = None
        self._allow_private = allow_private
        self._proxies = proxies

    def check(self, dialled: socket.socket, address: object) -> None:
        if address is None or dialled.family not in (socket.AF_INET, socket.AF_INET6):
            # a connected socket was checked before; a local socket is chosen by a URL of the configuration only
            return
        where, port = address[:2] if isinstance(address, tuple) else ("", 0)
        if (str(where), port) in self._proxies:
            return
        try:
            check_address("a server that Apprise connects to", str(where).partition("%")[0], self._allow_private)
        except Refused as error:
            self.refusal = error
            raise PermissionError("this address is refused") from None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _DIALLING and (guard := _connections.get()) is not None:
        guard.check(arguments[0], arguments[1])


@cache
def _watch_connections() -> None:
    sys.addaudithook(_audit)


def _proxy_addresses() -> frozenset[tuple[str, int]]:
    """Where the proxies of the environment are, which Apprise uses: the operator chose them, and they resolve names."""
    found: set[tuple[str, int]] = set()
    for url in getproxies().values():
        try:
            parts = urlsplit(url if "//" in url else f"//{url}")
            port = parts.port or (443 if parts.scheme == "https" else 80)
            resolved = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM) if parts.hostname else []
        except (OSError, ValueError):
            # a proxy that cannot be found cannot be connected to either
            continue
        found |= {(str(where[0]), port) for *_, where in resolved}
    return frozenset(found)


class _StatusRecorder(logging.Handler):
    """Collects status codes from the arguments of log records; their text is not used."""

    def emit(self, record: logging.LogRecord) -> None:
        statuses = _statuses.get()
        if statuses is not None and isinstance(record.args, tuple):
            statuses.extend(arg for arg in record.args if type(arg) is int and 400 <= arg < 600)


@cache
def _record_statuses() -> None:
    logger = logging.getLogger("apprise")
    logger.setLevel(logging.WARNING)
    # its records may name hosts, topics and people, which must not be in our logs
    logger.propagate = False
    logger.addHandler(_StatusRecorder())


def _build_sender(url: str) -> tuple[Apprise, NotifyBase]:
    try:
        from apprise import Apprise, AppriseAsset
    except ImportError:
        raise NeedsAttention("the package apprise is not installed", fix=INSTALL) from None
    _record_statuses()
    _watch_connections()
    asset = AppriseAsset(http_redirects=False, interpret_escapes=False)
    service = Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if service is None:
        raise NeedsAttention("Apprise does not understand the URL", fix=f"Correct it: {CONFIGURE}")
    sender = Apprise(asset=asset)
    sender.add(service)
    return sender, service


def _text_format() -> Any:
    from apprise import NotifyFormat

    return NotifyFormat.TEXT


def _title_and_body(message: Message) -> tuple[str, str]:
    title = one_line(message.title)
    if not message.text.strip() or not title:
        return "", title_and_text(message)
    return title, title_and_text(Message(to=message.to, text=message.text))


def _refusal(name: object, statuses: list[int]) -> HarkenError:
    """The error that the last status means; without a status, it may work later."""
    status = statuses[-1] if statuses else None
    if status is None:
        fix = "If this persists, check the URL and try it with Apprise's own command"
        return RetryLater(f"Apprise could not send to {name}, and does not say why", fix=fix)
    message = f"{name} answered {status} to a message through Apprise"
    if status == 429:
        return RetryLater(message, reason="rate_limited")
    if status >= 500 or status in _TEMPORARY:
        return RetryLater(message)
    return NeedsAttention(message, fix=f"Check the credentials and the recipient in the URL: {CONFIGURE}")


def _destination(query: object, account: Account, host: Host) -> AppriseDestination:
    return AppriseDestination(account, host)


plugin = Plugin(
    kind="apprise",
    summary="More than a hundred services, through Apprise",
    docs="reference/services/apprise.md",
    account=Account,
    destination=_destination,
    extra=lambda query, account: "apprise",
    environment={"APPRISE_URL": "url"},
)
