"""The account of a mail server, SMTP sessions with it, and what its refusals mean.

Sessions run in a thread, within a time limit. Errors quote the codes of a server, never its text.
"""

from __future__ import annotations

import asyncio
import re
import smtplib
import ssl
from collections.abc import Callable
from email.headerregistry import Address
from email.message import EmailMessage
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.kit import AccountModel, configure_hint
from harken.kit.sockets import allowed_addresses, connect, shut_down, tls_context

__all__ = ["Account", "parse_address", "run_session", "send", "verify_sign_in"]

CONFIGURE = configure_hint("email")
_ENHANCED = re.compile(rb"[245]\.\d{1,3}\.\d{1,3}")
_PORTS = {"starttls": 587, "ssl": 465, "none": 25}
# strict, because the standard library's parsers accept almost anything as an address
_ADDRESS = re.compile(r""""?(?P<name>[^"<>@,;]*)"? *<(?P<named>[^<>\s]+)>|(?P<plain>[^<>\s]+)""")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")


class Account(AccountModel):
    """A mail server, and who we are there."""

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
    def _is_address(cls, value: str) -> str:
        try:
            parse_address(value)
        except HarkenError as error:
            raise ValueError(error.message) from None
        return value.strip()

    @model_validator(mode="after")
    def _is_safe(self) -> Account:
        if bool(self.username) != (self.password is not None):
            raise ValueError("username and password belong together")
        if self.password is not None and self.security == "none":
            raise ValueError("security: none would send the password in the clear. Use starttls or ssl")
        return self

    @property
    def effective_port(self) -> int:
        """The configured port, or the default one."""
        return self.port or _PORTS[self.security]


class SmtpConnection(smtplib.SMTP):
    """SMTP that connects only to allowed addresses, and can be aborted from another thread."""

    def __init__(self, account: Account, allow_private: bool) -> None:
        self._account = account
        self._allow_private = allow_private
        self._tls = None if account.security == "none" else tls_context(account.ca_bundle)
        self._aborted = False
        super().__init__(timeout=account.timeout)

    def open(self) -> None:
        """Connect, encrypt and sign in."""
        account = self._account
        # smtplib checks the certificate against this name
        self._host = account.host
        _expect(self.connect(account.host, account.effective_port), "a greeting")
        self.ehlo_or_helo_if_needed()
        if account.security == "starttls":
            _expect(self.starttls(context=self._tls), "STARTTLS")
            self.ehlo_or_helo_if_needed()
        if account.password is not None:
            self.login(account.username, account.password.get_secret_value())

    def abort_connection(self) -> None:
        """Wake the thread that waits for the server."""
        self._aborted = True
        shut_down(self.sock)

    def _get_socket(self, host: str, port: int, timeout: Any) -> Any:
        addresses = allowed_addresses(host, port, self._allow_private)
        if self._aborted:
            raise TimeoutError
        sock = connect(addresses, timeout)
        if self._account.security != "ssl" or self._tls is None:
            return sock
        return self._tls.wrap_socket(sock, server_hostname=host)


class RefusedCommand(smtplib.SMTPResponseException):
    """The server refused `what`."""

    def __init__(self, code: int, text: bytes, what: str) -> None:
        super().__init__(code, text)
        self.what = what


async def run_session(account: Account, allow_private: bool, work: Callable[[SmtpConnection], None]) -> None:
    """Sign in and run `work`. Raises RetryLater or NeedsAttention; the time limit also ends the thread."""
    smtp = SmtpConnection(account, allow_private)
    try:
        async with asyncio.timeout(account.timeout):
            await asyncio.to_thread(_run_in_session, smtp, work)
    except TimeoutError:
        message = f"{account.host} did not accept the mail within {account.timeout:g} s"
        raise RetryLater(message, reason="timeout") from None
    except (smtplib.SMTPException, OSError) as error:
        # not chained: the library's errors quote the server's text
        raise _to_harken_error(error, account) from None
    finally:
        smtp.abort_connection()


def _run_in_session(smtp: SmtpConnection, work: Callable[[SmtpConnection], None]) -> None:
    try:
        smtp.open()
        work(smtp)
    finally:
        smtp.close()


def verify_sign_in(smtp: SmtpConnection) -> None:
    """Check that the server answers after the sign-in."""
    _expect(smtp.noop(), "NOOP")
    smtp.docmd("QUIT")


def send(smtp: SmtpConnection, account: Account, to: list[str], mail: EmailMessage) -> None:
    """Send the mail. One refused recipient stops it for all, so that a retry never reaches anyone twice."""
    _expect(smtp.mail(parse_address(account.sender).addr_spec), "the sender")
    for one in to:
        _expect(smtp.rcpt(one), f"the recipient {one}")
    _expect(smtp.data(mail.as_bytes()), "the letter")
    try:
        smtp.docmd("QUIT")
    except smtplib.SMTPServerDisconnected:
        return  # the mail is accepted; some servers close the connection first


def _expect(answer: tuple[int, bytes], what: str) -> None:
    if not 200 <= answer[0] < 300:
        raise RefusedCommand(answer[0], answer[1], what)


def _to_harken_error(error: Exception, account: Account) -> HarkenError:
    host = account.host
    if isinstance(error, smtplib.SMTPResponseException):
        return _refusal_error(error, account)
    # smtplib raises the bare class if it knows none of the server's sign-in methods
    if isinstance(error, smtplib.SMTPNotSupportedError) or type(error) is smtplib.SMTPException:
        what = f"{host} does not offer what security: {account.security} and the signing in need"
        return NeedsAttention(what, fix=f"Check security and port: {CONFIGURE}")
    if isinstance(error, ssl.SSLCertVerificationError):
        fix = "If it is signed by your own authority, set ca_bundle to that authority's certificates"
        return NeedsAttention(f"the certificate of {host} is not trusted ({error.verify_message})", fix=fix)
    if isinstance(error, ssl.SSLError):
        return RetryLater(
            f"no TLS connection could be made with {host}", fix="Check security and port if this persists"
        )
    return RetryLater(
        f"the connection to {host}:{account.effective_port} failed", fix="Check host and port if this persists"
    )


def _refusal_error(error: smtplib.SMTPResponseException, account: Account) -> HarkenError:
    text = error.smtp_error if isinstance(error.smtp_error, bytes) else str(error.smtp_error).encode()
    finer = _ENHANCED.search(text)
    code = f"{error.smtp_code}{f' {finer[0].decode()}' if finer else ''}"
    signing = isinstance(error, smtplib.SMTPAuthenticationError)
    what = "the signing in" if signing else getattr(error, "what", "a command")
    message = f"{account.host} answered {code} to {what}"
    if error.smtp_code < 500:
        return RetryLater(message)
    if signing or error.smtp_code == 530:
        return NeedsAttention(message, fix=f"Check username and password (often an app password): {CONFIGURE}")
    return NeedsAttention(message, fix="Check the addresses, and that the server accepts mail from this sender")


def parse_address(text: str) -> Address:
    """The one address in the text, with its name. NeedsAttention if it is not one."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or not text.strip().isprintable():
        raise _not_an_address()
    local, _, domain = (found["named"] or found["plain"]).rpartition("@")
    try:
        domain = domain.encode("idna").decode("ascii")
    except UnicodeError:
        raise _not_an_address() from None
    if not local.isascii():
        raise NeedsAttention("an address has non-ASCII letters before the @", fix="Use another address")
    if not _LOCAL.fullmatch(local) or not _DOMAIN.fullmatch(domain) or len(local) > 64:
        raise _not_an_address()
    return Address(display_name=(found["name"] or "").strip(), username=local, domain=domain)


def _not_an_address() -> NeedsAttention:
    return NeedsAttention("this is not an e-mail address", fix="Write name@example.com, several separated by commas")
