"""The account of a mail server."""

from __future__ import annotations

import asyncio
import re
import smtplib
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.kit.sockets import allowed_addresses, connect, shut_down, tls_context
from harken.services.email.message import address

__all__ = ["Account", "attempt", "greet", "send"]


_PORTS = {"starttls": 587, "ssl": 465, "none": 25}


class Account(BaseModel):
    """A mail server, and who we are there."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    host: str = Field(pattern=r"^[A-Za-z0-9.:_-]{1,253}$", description="name of the mail server")
    sender: str = Field(description="where letters come from: harken@example.com, or Harken <harken@example.com>")
    security: Literal["starttls", "ssl", "none"] = Field("starttls", description="starttls, ssl, or none")
    port: int = Field(0, ge=0, le=65535, description="0 for the usual one: 587 (starttls), 465 (ssl) or 25 (none)")
    username: str = Field("", description="to sign in; empty where the server wants nobody to")
    password: SecretStr | None = Field(None, description="of the user; often an app password")
    ca_bundle: str = Field("", description="certificates to trust, if your own authority signs the server's")
    timeout: float = Field(20.0, gt=0, le=300, description="seconds for the whole conversation")

    @field_validator("sender")
    @classmethod
    def _one_address(cls, value: str) -> str:
        try:
            address(value)
        except HarkenError as error:
            raise ValueError(error.message) from None
        return value.strip()

    @model_validator(mode="after")
    def _safe(self) -> Account:
        if bool(self.username) != (self.password is not None):
            raise ValueError("username and password belong together")
        if self.password is not None and self.security == "none":
            raise ValueError("security: none would send the password in the clear. Use starttls or ssl")
        return self

    @property
    def gate(self) -> int:
        """The port to knock at."""
        return self.port or _PORTS[self.security]


CONFIGURE = "harken integrations email configure"

_ENHANCED = re.compile(rb"[245]\.\d{1,3}\.\d{1,3}")


class Conversation(smtplib.SMTP):
    """SMTP that dials only allowed addresses, and that can be broken off from another thread."""

    def __init__(self, account: Account, allow_private: bool) -> None:
        self._account = account
        self._allow_private = allow_private
        self._tls = None if account.security == "none" else tls_context(account.ca_bundle)
        self._broken_off = False
        super().__init__(timeout=account.timeout)

    def open(self) -> None:
        """Connect, encrypt and sign in."""
        account = self._account
        # smtplib checks the certificate against this name
        self._host = account.host
        _expect(self.connect(account.host, account.gate), "a greeting")
        self.ehlo_or_helo_if_needed()
        if account.security == "starttls":
            _expect(self.starttls(context=self._tls), "STARTTLS")
            self.ehlo_or_helo_if_needed()
        if account.password is not None:
            self.login(account.username, account.password.get_secret_value())

    def break_off(self) -> None:
        """Wake the thread that waits for the server."""
        self._broken_off = True
        shut_down(self.sock)

    def _get_socket(self, host: str, port: int, timeout: Any) -> Any:
        places = allowed_addresses(host, port, self._allow_private)
        if self._broken_off:
            raise TimeoutError
        sock = connect(places, timeout)
        if self._account.security != "ssl" or self._tls is None:
            return sock
        return self._tls.wrap_socket(sock, server_hostname=host)


async def attempt(account: Account, allow_private: bool, talk: Callable[[Conversation], None]) -> None:
    """Have the conversation. Raises RetryLater or NeedsAttention; after the time limit nothing waits any longer."""
    smtp = Conversation(account, allow_private)
    try:
        async with asyncio.timeout(account.timeout):
            await asyncio.to_thread(_have, smtp, talk)
    except TimeoutError:
        said = f"{account.host} did not take the letter within {account.timeout:g} s"
        raise RetryLater(said, reason="timeout") from None
    except (smtplib.SMTPException, OSError) as error:
        # not chained: the library's errors quote what the server said
        raise _problem(error, account) from None
    finally:
        smtp.break_off()


def _have(smtp: Conversation, talk: Callable[[Conversation], None]) -> None:
    try:
        smtp.open()
        talk(smtp)
    finally:
        smtp.close()


def greet(smtp: Conversation) -> None:
    """Nothing but the signing in."""
    _expect(smtp.noop(), "NOOP")
    smtp.docmd("QUIT")


def send(smtp: Conversation, account: Account, to: list[str], letter: EmailMessage) -> None:
    """Hand the letter over. One refused recipient stops it for all, so that a later try is the first for everybody."""
    _expect(smtp.mail(address(account.sender).addr_spec), "the sender")
    for one in to:
        _expect(smtp.rcpt(one), f"the recipient {one}")
    _expect(smtp.data(letter.as_bytes()), "the letter")
    try:
        smtp.docmd("QUIT")
    except smtplib.SMTPServerDisconnected:
        return  # it has the letter; some do not wait for a goodbye


class Said(smtplib.SMTPResponseException):
    """The server's answer to `what` was not yes."""

    def __init__(self, code: int, text: bytes, what: str) -> None:
        super().__init__(code, text)
        self.what = what


def _expect(answer: tuple[int, bytes], what: str) -> None:
    if not 200 <= answer[0] < 300:
        raise Said(answer[0], answer[1], what)


def _problem(error: Exception, account: Account) -> HarkenError:
    host = account.host
    if isinstance(error, smtplib.SMTPResponseException):
        return _answered(error, account)
    # the bare class is what smtplib raises when it knows none of the ways to sign in
    if isinstance(error, smtplib.SMTPNotSupportedError) or type(error) is smtplib.SMTPException:
        what = f"{host} does not offer what security: {account.security} and the signing in need"
        return NeedsAttention(what, fix=f"Check security and port: {CONFIGURE}")
    if isinstance(error, ssl.SSLCertVerificationError):
        fix = "If it is signed by your own authority, set ca_bundle to that authority's certificates"
        return NeedsAttention(f"the certificate of {host} is not trusted ({error.verify_message})", fix=fix)
    if isinstance(error, ssl.SSLError):
        return RetryLater(f"no TLS connection could be made with {host}", fix="Check security and port if this stays")
    return RetryLater(f"the connection to {host}:{account.gate} failed", fix="Check host and port if this stays")


def _answered(error: smtplib.SMTPResponseException, account: Account) -> HarkenError:
    text = error.smtp_error if isinstance(error.smtp_error, bytes) else str(error.smtp_error).encode()
    finer = _ENHANCED.search(text)
    code = f"{error.smtp_code}{f' {finer[0].decode()}' if finer else ''}"
    signing = isinstance(error, smtplib.SMTPAuthenticationError)
    what = "the signing in" if signing else getattr(error, "what", "a command")
    said = f"{account.host} answered {code} to {what}"
    if error.smtp_code < 500:
        return RetryLater(said)
    if signing or error.smtp_code == 530:
        return NeedsAttention(said, fix=f"Check username and password (often an app password): {CONFIGURE}")
    return NeedsAttention(said, fix="Check the addresses, and that the server takes letters from this sender")
