"""Apprise: more than a hundred services by a URL each (https://github.com/caronc/apprise/wiki).

Apprise makes its own connections, in threads of its own, and says no more than whether it worked. The status of a
refusal is in what it logs, as a number beside the words; where it is not, trying again is the only honest answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr, model_validator

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.http.guard import check_address
from harken.kit import AccountModel, configure_hint
from harken.kit.messages import one_line, title_and_text
from harken.source import Host, Message, Plugin

if TYPE_CHECKING:
    from apprise import Apprise, NotifyBase

__all__ = ["Account", "Services", "plugin"]

CONFIGURE = configure_hint("apprise")
INSTALL = "pip install 'harken[apprise]'"
DEFAULT = "default"
_LATER = frozenset({408, 425, 429})
_heard: ContextVar[list[int] | None] = ContextVar("apprise_statuses", default=None)


class Account(AccountModel):
    """URLs of Apprise by the names that `to` may have. They hold credentials, so they are written only here."""

    url: SecretStr | None = Field(None, description="a URL of Apprise; its name is `default`")
    urls: dict[str, SecretStr] = Field(default_factory=dict, description="more of them, by name")

    @model_validator(mode="after")
    def _has_one(self) -> Account:
        if self.url is None and not self.urls:
            raise ValueError("give a url, or urls by name")
        if self.url is not None and DEFAULT in self.urls:
            raise ValueError("`default` is the name of url")
        return self

    def named(self, name: str) -> str | None:
        found = self.url if name in ("", DEFAULT) and self.url is not None else self.urls.get(name)
        return None if found is None else found.get_secret_value().strip()


class Services:
    """Sends through Apprise. It knows no repeats: a message whose answer was lost is shown twice."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        url = self._account.named(message.to.strip())
        if url is None:
            known = ", ".join(sorted({*self._account.urls, *([DEFAULT] if self._account.url else [])}))
            raise NeedsAttention("`to` is not the name of one of Apprise's URLs", fix=f"Write one of: {known}")
        title, body = _words(message)
        # importing Apprise and its plugins takes half a second
        sender, service = await asyncio.to_thread(_built, url)
        await self._guard(service)
        statuses: list[int] = []
        token = _heard.set(statuses)
        try:
            result = await sender.async_notify(body=body, title=title, body_format=_plain())
        finally:
            _heard.reset(token)
        if not result:
            raise _refusal(service.service_name, statuses)
        return {"service": str(service.service_name)}

    async def _guard(self, service: NotifyBase) -> None:
        """What can be done beforehand: the name may lead elsewhere a moment later, when Apprise resolves it itself."""
        host = service.host
        # where a URL has no host, most plugins keep a token in its place, which must not be asked of a name server
        if not isinstance(host, str) or not host or "host" not in service.template_tokens:
            return
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise RetryLater(
                "the host in the URL of Apprise is not known", fix="Correct the URL if this stays"
            ) from None
        try:
            for *_, where in found:
                check_address(host, str(where[0]), self._host.allow_private)
        except Refused as error:
            raise NeedsAttention(error.message, fix=error.fix or "Correct the URL") from None


class _Listener(logging.Handler):
    """Hears the status codes among the values of log records; the words stay unread."""

    def emit(self, record: logging.LogRecord) -> None:
        heard = _heard.get()
        if heard is not None and isinstance(record.args, tuple):
            heard.extend(arg for arg in record.args if type(arg) is int and 400 <= arg < 600)


@cache
def _listen() -> None:
    logger = logging.getLogger("apprise")
    logger.setLevel(logging.WARNING)
    # it may name hosts, topics and people, which are in none of our logs
    logger.propagate = False
    logger.addHandler(_Listener())


def _built(url: str) -> tuple[Apprise, NotifyBase]:
    try:
        from apprise import Apprise, AppriseAsset
    except ImportError:
        raise NeedsAttention("sending through Apprise needs a package that is not installed", fix=INSTALL) from None
    _listen()
    asset = AppriseAsset(http_redirects=False, interpret_escapes=False)
    service = Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if service is None:
        raise NeedsAttention("Apprise does not understand the URL", fix=f"Correct it: {CONFIGURE}")
    sender = Apprise(asset=asset)
    sender.add(service)
    return sender, service


def _plain() -> Any:
    from apprise import NotifyFormat

    return NotifyFormat.TEXT


def _words(message: Message) -> tuple[str, str]:
    title = one_line(message.title)
    if not message.text.strip() or not title:
        return "", title_and_text(message)
    return title, title_and_text(Message(to=message.to, text=message.text))


def _refusal(name: object, statuses: list[int]) -> HarkenError:
    """What the last status means; without one, it may pass."""
    status = statuses[-1] if statuses else None
    if status is None:
        fix = "If this stays, check the URL and try it with Apprise's own command"
        return RetryLater(f"Apprise could not send to {name}, and does not say why", fix=fix)
    message = f"{name} answered {status} to a message through Apprise"
    if status == 429:
        return RetryLater(message, reason="rate_limited")
    if status >= 500 or status in _LATER:
        return RetryLater(message)
    return NeedsAttention(message, fix=f"Check the credentials and the recipient in the URL: {CONFIGURE}")


def _destination(query: object, account: Account, host: Host) -> Services:
    return Services(account, host)


plugin = Plugin(
    kind="apprise",
    summary="More than a hundred services, through Apprise",
    docs="reference/services/apprise.md",
    account=Account,
    destination=_destination,
    environment={"APPRISE_URL": "url"},
)
