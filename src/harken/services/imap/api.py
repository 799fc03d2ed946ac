"""The conversation with a mail server, in a thread, within limits of time and size.

What a server says is not repeated, only the codes of RFC 5530: it may quote a mail, or a password.
"""

from __future__ import annotations

import asyncio
import imaplib
import re
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.kit.sockets import addresses, dial, shut, trusted
from harken.services.imap.account import CONFIGURE, Account, is_here
from harken.services.imap.fetched import Raw, raws_of

__all__ = ["LARGEST", "Opened", "Talk", "attempt"]

T = TypeVar("T")

LARGEST = 256_000
"""Bytes of a mail that are read: texts come before attachments."""
MOST_BYTES = 16_000_000
_ITEMS = f"(UID FLAGS INTERNALDATE RFC822.SIZE BODY.PEEK[]<0.{LARGEST}>)"
_CODE = re.compile(r"\s*\[([A-Z][A-Z0-9-]{1,40})[ \]]")
_PASSING = frozenset({"UNAVAILABLE", "INUSE", "LIMIT", "SERVERBUG", "EXPUNGEISSUED"})


class Said(Exception):
    """The server's answer to `what` was not yes."""

    def __init__(self, text: str, what: str, *, signing: bool = False) -> None:
        super().__init__(what)
        found = _CODE.match(text)
        self.code, self.what, self.signing = found[1] if found else "", what, signing


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A folder. As long as `validity` is the same, a uid is the same mail. `following` is 0 where it is not told."""

    validity: int
    following: int = 0
    count: int = 0


class Talk(imaplib.IMAP4):
    """IMAP that dials only allowed addresses, takes no more than it can hold, and can be broken off from outside."""

    def __init__(self, account: Account, allow_private: bool) -> None:
        # the library's own constructor dials, so it waits for the thread
        self.sock: Any = None
        self._account = account
        self._allow_private = allow_private
        self._tls = None if account.tls == "false" else trusted(account.ca_bundle)
        self._left = MOST_BYTES
        self._broken_off = False

    def begin(self) -> None:
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
                raise Said("", "the ways to sign in that we know", signing=True)
            else:
                self.login(f'"{_escaped(user)}"', secret)
        except self.abort:
            raise
        except self.error as error:
            raise Said(_text(error.args), "the signing in", signing=True) from None

    def examine(self, folder: str, *, writing: bool = False) -> Opened:
        """Open a folder, without changing anything in it unless `writing`."""
        try:
            answer = self.select(folder, readonly=not writing)
        except self.readonly:
            raise Said("[READ-ONLY]", "a folder that may only be read") from None
        count = _expect(answer, "the folder")
        validity = _number(self.response("UIDVALIDITY")[1])
        if not validity:
            raise self.abort("no UIDVALIDITY")
        return Opened(validity=validity, following=_number(self.response("UIDNEXT")[1]), count=_number(count))

    def search_after(self, uid: int, *keys: str) -> list[int]:
        """The uids above this one that match, in their order."""
        answer = _expect(self.uid("SEARCH", f"UID {uid + 1}:*", *keys), "the search")
        words = [word for line in answer if isinstance(line, bytes) for word in line.split()]
        # n:* always has the last mail in it, also if its uid is below n
        return sorted({int(word) for word in words if word.isdigit() and uid < int(word) < 2**32})

    def fetch_these(self, uids: Sequence[int]) -> list[Raw]:
        """The mails, without marking them as read. One that is gone by now is left out."""
        answer = _expect(self.uid("FETCH", ",".join(map(str, uids)), _ITEMS), "the mails")
        return sorted((raw for raw in raws_of(answer) if raw.uid in set(uids)), key=lambda raw: raw.uid)

    def mark_seen(self, uid: int) -> None:
        _expect(self.uid("STORE", str(uid), "+FLAGS.SILENT", "(\\Seen)"), "a mark")

    def break_off(self) -> None:
        """Wake the thread that waits for the server."""
        self._broken_off = True
        shut(self.sock)

    def hang_up(self) -> None:
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
        places = addresses(account.host, account.port, self._allow_private)
        if account.tls == "false" and not all(is_here(str(where[0])) for where in places):
            raise NeedsAttention(f"{account.host} is not on this machine, and tls is false", fix="Use tls: true")
        if self._broken_off:
            raise TimeoutError
        self.sock = dial(places, timeout)
        if account.tls != "true" or self._tls is None:
            return self.sock
        return self._tls.wrap_socket(self.sock, server_hostname=account.host)


async def attempt(account: Account, allow_private: bool, say: Callable[[Talk], T]) -> T:
    """Have the conversation. Raises RetryLater or NeedsAttention; after the time limit nothing waits any longer."""
    talk = Talk(account, allow_private)
    try:
        async with asyncio.timeout(account.timeout):
            return await asyncio.to_thread(_have, talk, say)
    except TimeoutError:
        raise RetryLater(f"{account.host} took longer than {account.timeout:g} s", reason="timeout") from None
    except (Said, imaplib.IMAP4.error, OSError, UnicodeError) as error:
        # not chained: the library's errors quote what the server said
        raise _problem(error, account) from None
    finally:
        talk.break_off()


def _have(talk: Talk, say: Callable[[Talk], T]) -> T:
    try:
        talk.begin()
        said = say(talk)
        with suppress(imaplib.IMAP4.error, OSError):
            talk.logout()  # everything is said; some servers do not wait for a goodbye
        return said
    finally:
        talk.hang_up()


def _expect(answer: tuple[str, Sequence[Any]], what: str) -> Sequence[Any]:
    if answer[0] != "OK":
        raise Said(_text(answer[1]), what)
    return answer[1]


def _text(answer: Sequence[Any]) -> str:
    last = answer[-1] if answer else ""
    return last.decode("ascii", "replace") if isinstance(last, bytes) else str(last)


def _number(answer: Sequence[Any]) -> int:
    last = answer[-1] if answer else None
    return int(last) if isinstance(last, bytes) and last.isdigit() and len(last) <= 12 else 0


def _problem(error: Exception, account: Account) -> HarkenError:
    host = account.host
    if isinstance(error, Said):
        return _answered(error, account)
    if isinstance(error, ssl.SSLCertVerificationError):
        fix = "If it is signed by your own authority, set ca_bundle to that authority's certificates"
        return NeedsAttention(f"the certificate of {host} is not trusted ({error.verify_message})", fix=fix)
    if isinstance(error, ssl.SSLError):
        return RetryLater(f"no TLS connection could be made with {host}", fix="Check tls and port if this stays")
    if isinstance(error, imaplib.IMAP4.abort | UnicodeError | OSError):
        said = f"the connection to {host}:{account.port} failed"
        return RetryLater(said, fix="Check host, port and tls if this stays")
    return NeedsAttention(f"{host} does not understand what it was asked", fix="Check the search of the query")


def _answered(error: Said, account: Account) -> HarkenError:
    code = f" ({error.code})" if error.code else ""
    said = f"{account.host} said no to {error.what}{code}"
    if error.code in _PASSING:
        return RetryLater(said)
    if error.signing:
        return NeedsAttention(said, fix=f"Check username and password (often an app password): {CONFIGURE}")
    return NeedsAttention(said, fix="Check the folder and the search, and that the user may see them")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
