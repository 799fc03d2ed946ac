"""The account of an IMAP server, sessions with it, and what its refusals mean.

Sessions run in a thread, within limits of time and size. Errors quote only the codes of RFC 5530: a server's text may
contain parts of a mail, or a password.
"""

from __future__ import annotations

import asyncio
import imaplib
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Literal, TypeVar

import msgspec
from pydantic import Field, SecretStr, field_validator, model_validator

from harken.errors import HarkenError, NeedsAttention, NoConnection, RetryLater
from harken.http.error_translation import connection_fault
from harken.kit import AccountModel, configure_hint
from harken.kit.sockets import allowed_addresses, connect, shut_down, tls_context

__all__ = [
    "LARGEST",
    "Account",
    "FolderState",
    "ImapConnection",
    "RawMail",
    "parse_fetch",
    "run_session",
]

T = TypeVar("T")

CONFIGURE = configure_hint("imap")
LARGEST = 256_000
"""Bytes of a mail that are fetched: texts come before attachments."""
MOST_BYTES = 16_000_000
_ITEMS = f"(UID FLAGS INTERNALDATE RFC822.SIZE BODY.PEEK[]<0.{LARGEST}>)"
_CODE = re.compile(r"\s*\[([A-Z][A-Z0-9-]{1,40})[ \]]")
_TEMPORARY = frozenset({"UNAVAILABLE", "INUSE", "LIMIT", "SERVERBUG", "EXPUNGEISSUED"})
_FETCH_TOKEN = re.compile(rb'\(|\)|"(?:[^"\\]|\\.)*"|[^\s()"]+')
_LITERAL_SIZE = re.compile(rb"\{\d+\+?\}\s*$")
_DEEPEST = 20


class Account(AccountModel):
    """A mail server, and who we are there."""

    host: str = Field(pattern=r"^[A-Za-z0-9.:_-]{1,253}$", description="name of the mail server")
    port: int = Field(993, ge=1, le=65535, description="usually 993, with tls: starttls 143")
    username: str = Field(min_length=1, max_length=300, description="to sign in; often the whole address")
    password: SecretStr = Field(description="of the user; often an app password")
    tls: Literal["true", "starttls", "false"] = Field(
        "true", description="true, starttls, or false (this machine only)"
    )
    ca_bundle: str = Field("", description="certificates to trust, if your own authority signs the server's")
    timeout: float = Field(9.0, gt=0, le=300, description="seconds for one conversation")

    @field_validator("tls", mode="before")
    @classmethod
    def _lower_text(cls, value: Any) -> Any:
        return str(value).lower() if isinstance(value, bool | str) else value

    @field_validator("username")
    @classmethod
    def _is_printable(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("a username has no control characters")
        return value

    @field_validator("password")
    @classmethod
    def _is_one_line(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value() or any(char in value.get_secret_value() for char in "\r\n\0"):
            raise ValueError("a password is not empty, and has no line ends")
        return value

    @model_validator(mode="after")
    def _is_safe(self) -> Account:
        if self.tls == "false" and not is_loopback(self.host) and self.host.lower() != "localhost":
            raise ValueError("tls: false would send the password in the clear. It is for this machine only")
        return self


class FolderState(msgspec.Struct, frozen=True, kw_only=True):
    """A folder. While `validity` is the same, a uid means the same mail. `following`: the next uid, 0 if unknown."""

    validity: int
    following: int = 0
    count: int = 0


class RawMail(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a mail, and the size of all of it."""

    uid: int
    flags: tuple[str, ...] = ()
    came: str = ""
    size: int = 0
    data: bytes = b""


class ImapConnection(imaplib.IMAP4):
    """IMAP that connects only to allowed addresses, limits what it reads, and can be aborted from another thread."""

    def __init__(self, account: Account, allow_private: bool) -> None:
        # imaplib's constructor connects, so it is called later, in the thread
        self.sock: Any = None
        self._account = account
        self._allow_private = allow_private
        self._tls = None if account.tls == "false" else tls_context(account.ca_bundle)
        self._left = MOST_BYTES
        self._aborted = False

    def open_session(self) -> None:
        """Connect, encrypt and sign in."""
        account = self._account
        try:
            super().__init__(account.host, account.port, account.timeout)
        except self.error:
            raise self.abort("no greeting") from None
        if account.tls == "starttls" and self._tls is not None:
            self.starttls(ssl_context=self._tls)
        self._sign_in(account.username, account.password.get_secret_value())

    def _sign_in(self, user: str, secret: str) -> None:
        try:
            if "AUTH=PLAIN" in self.capabilities:
                self.authenticate("PLAIN", lambda _: f"\0{user}\0{secret}".encode())
            elif "LOGINDISABLED" in self.capabilities or not f"{user}{secret}".isascii():
                raise RefusedCommand("", "AUTH=PLAIN and LOGIN", signing=True)
            else:
                self.login(f'"{_escaped(user)}"', secret)
        except self.abort:
            raise
        except self.error as error:
            raise RefusedCommand(_text(error.args), "the signing in", signing=True) from None

    def examine(self, folder: str, *, writing: bool = False) -> FolderState:
        """Open a folder, without changing anything in it unless `writing`."""
        try:
            answer = self.select(folder, readonly=not writing)
        except self.readonly:
            raise RefusedCommand("[READ-ONLY]", "a folder that may only be read") from None
        count = _expect(answer, "the folder")
        validity = _number(self.response("UIDVALIDITY")[1])
        if not validity:
            raise self.abort("no UIDVALIDITY")
        return FolderState(validity=validity, following=_number(self.response("UIDNEXT")[1]), count=_number(count))

    def search_after(self, uid: int, *keys: str) -> list[int]:
        """The matching uids above this one, in ascending order."""
        answer = _expect(self.uid("SEARCH", f"UID {uid + 1}:*", *keys), "the search")
        words = [word for line in answer if isinstance(line, bytes) for word in line.split()]
        # n:* always includes the last mail, even if its uid is below n
        return sorted({int(word) for word in words if word.isdigit() and uid < int(word) < 2**32})

    def fetch_mails(self, uids: Sequence[int]) -> list[RawMail]:
        """The mails, without marking them as read and without those deleted meanwhile."""
        answer = _expect(self.uid("FETCH", ",".join(map(str, uids)), _ITEMS), "the mails")
        return sorted((mail for mail in parse_fetch(answer) if mail.uid in set(uids)), key=lambda mail: mail.uid)

    def mark_seen(self, uid: int) -> None:
        _expect(self.uid("STORE", str(uid), "+FLAGS.SILENT", "(\\Seen)"), "a mark")

    def abort_connection(self) -> None:
        """Wake the thread that waits for the server."""
        self._aborted = True
        shut_down(self.sock)

    def close_connection(self) -> None:
        for line in (getattr(self, "file", None), self.sock):
            if line is not None:
                line.close()

    def read(self, size: int) -> bytes:
        self._count(size)
        return super().read(size)

    def readline(self) -> bytes:
        try:
            line = super().readline()
        except self.error:
            raise self.abort("a line without end") from None
        self._count(len(line))
        return line

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise self.abort("too much")

    def _create_socket(self, timeout: float | None) -> Any:
        account = self._account
        places = allowed_addresses(account.host, account.port, self._allow_private)
        if account.tls == "false" and not all(is_loopback(str(where[0])) for where in places):
            raise NeedsAttention(f"{account.host} is not on this machine, and tls is false", fix="Use tls: true")
        if self._aborted:
            raise TimeoutError
        self.sock = connect(places, timeout)
        if account.tls != "true" or self._tls is None:
            return self.sock
        return self._tls.wrap_socket(self.sock, server_hostname=account.host)


async def run_session(account: Account, allow_private: bool, work: Callable[[ImapConnection], T]) -> T:
    """Sign in and run `work`. Raises RetryLater or NeedsAttention; the time limit also ends the thread."""
    connection = ImapConnection(account, allow_private)
    try:
        async with asyncio.timeout(account.timeout):
            return await asyncio.to_thread(_run_in_session, connection, work)
    except TimeoutError:
        raise RetryLater(f"{account.host} took longer than {account.timeout:g} s", reason="timeout") from None
    except (RefusedCommand, imaplib.IMAP4.error, OSError, UnicodeError) as error:
        # not chained: the library's errors quote the server's text
        raise _to_harken_error(error, account, allow_private) from None
    finally:
        connection.abort_connection()


def _run_in_session(connection: ImapConnection, work: Callable[[ImapConnection], T]) -> T:
    try:
        connection.open_session()
        result = work(connection)
        with suppress(imaplib.IMAP4.error, OSError):
            connection.logout()  # the work is done; some servers close the connection first
        return result
    finally:
        connection.close_connection()


def _expect(answer: tuple[str, Sequence[Any]], what: str) -> Sequence[Any]:
    if answer[0] != "OK":
        raise RefusedCommand(_text(answer[1]), what)
    return answer[1]


def _text(answer: Sequence[Any]) -> str:
    last = answer[-1] if answer else ""
    return last.decode("ascii", "replace") if isinstance(last, bytes) else str(last)


def _number(answer: Sequence[Any]) -> int:
    last = answer[-1] if answer else None
    return int(last) if isinstance(last, bytes) and last.isdigit() and len(last) <= 12 else 0


def _to_harken_error(error: Exception, account: Account, private: bool) -> HarkenError:
    host = account.host
    if isinstance(error, RefusedCommand):
        return _refusal_error(error, account)
    if isinstance(error, ssl.SSLCertVerificationError):
        fix = "If it is signed by your own authority, set ca_bundle to that authority's certificates"
        return NeedsAttention(f"the certificate of {host} is not trusted ({error.verify_message})", fix=fix)
    if isinstance(error, ssl.SSLError):
        return RetryLater(f"no TLS connection could be made with {host}", fix="Check tls and port if this persists")
    if isinstance(error, imaplib.IMAP4.abort | UnicodeError | OSError):
        message, fix = f"the connection to {host}:{account.port} failed", "Check host, port and tls if this persists"
        if fault := connection_fault(error):
            return NoConnection(message, host=host, cause=fault, private=private, fix=fix)
        return RetryLater(message, fix=fix)
    return NeedsAttention(f"{host} did not understand a command", fix="Check the search of the query")


def _refusal_error(error: RefusedCommand, account: Account) -> HarkenError:
    code = f" ({error.code})" if error.code else ""
    message = f"{account.host} refused {error.what}{code}"
    if error.code in _TEMPORARY:
        return RetryLater(message)
    if error.signing:
        return NeedsAttention(message, fix=f"Check username and password (often an app password): {CONFIGURE}")
    return NeedsAttention(message, fix="Check the folder and the search, and that the user may see them")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


class RefusedCommand(Exception):
    """The server refused `what`."""

    def __init__(self, text: str, what: str, *, signing: bool = False) -> None:
        super().__init__(what)
        found = _CODE.match(text)
        self.code, self.what, self.signing = found[1] if found else "", what, signing


def parse_fetch(answer: Sequence[Any]) -> list[RawMail]:
    """The mails in a FETCH response that have a uid and a body; servers may send other data in between."""
    found = [mail for items in _lists(_tokens(answer)) if (mail := _raw(items)) is not None]
    return list({mail.uid: mail for mail in found}.values())


class _Literal(bytes):
    """A literal: content of a mail, never syntax."""


def _tokens(answer: Sequence[Any]) -> Iterator[bytes]:
    for piece in answer:
        if isinstance(piece, tuple) and len(piece) == 2:
            yield from _FETCH_TOKEN.findall(_LITERAL_SIZE.sub(b"", piece[0]))
            yield _Literal(piece[1])
        elif isinstance(piece, bytes):
            yield from _FETCH_TOKEN.findall(piece)


def _lists(tokens: Iterator[bytes]) -> Iterator[list[Any]]:
    """Each outermost parenthesized list, with nested lists inside."""
    stack: list[list[Any]] = []
    for token in tokens:
        if isinstance(token, _Literal):
            if stack:
                stack[-1].append(token)
        elif token == b"(" and len(stack) < _DEEPEST:
            stack.append([])
        elif token == b")" and stack:
            done = stack.pop()
            if not stack:
                yield done
            else:
                stack[-1].append(done)
        elif stack:
            stack[-1].append(_unquote_token(token))


def _unquote_token(token: bytes) -> bytes:
    return re.sub(rb"\\(.)", rb"\1", token[1:-1]) if token.startswith(b'"') and len(token) > 1 else token


def _raw(items: list[Any]) -> RawMail | None:
    named = {bytes(key).upper(): value for key, value in zip(items[::2], items[1::2], strict=False) if _is_word(key)}
    body = next((value for key, value in named.items() if key.startswith(b"BODY[")), None)
    uid = _fetch_number(named.get(b"UID"))
    if not uid or not isinstance(body, bytes):
        return None
    flags = named.get(b"FLAGS")
    return RawMail(
        uid=uid,
        flags=tuple(_ascii(flag).lstrip("\\") for flag in flags if _is_word(flag)) if isinstance(flags, list) else (),
        came=_ascii(named.get(b"INTERNALDATE")),
        size=_fetch_number(named.get(b"RFC822.SIZE")),
        data=b"" if body == b"NIL" and not isinstance(body, _Literal) else bytes(body),
    )


def _is_word(value: Any) -> bool:
    return isinstance(value, bytes) and not isinstance(value, _Literal)


def _fetch_number(value: Any) -> int:
    return int(value) if _is_word(value) and value.isdigit() and len(value) <= 12 else 0


def _ascii(value: Any) -> str:
    return bytes(value).decode("ascii", "replace") if isinstance(value, bytes) else ""


def is_loopback(address: str) -> bool:
    """Whether the address is a loopback address."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
