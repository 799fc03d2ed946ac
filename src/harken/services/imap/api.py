"""The conversation with a mail server, in a thread, within limits of time and size.

What a server says is not repeated, only the codes of RFC 5530: it may quote a mail, or a password.
"""

from __future__ import annotations

import asyncio
import base64
import imaplib
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from ipaddress import ip_address
from typing import Any, Literal, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.kit.sockets import allowed_addresses, connect, shut_down, tls_context

__all__ = [
    "CONFIGURE",
    "LARGEST",
    "Account",
    "Opened",
    "Raw",
    "Talk",
    "attempt",
    "day",
    "folder_name",
    "is_here",
    "quoted",
    "raws_of",
    "search_keys",
]


CONFIGURE = "harken integrations imap configure"


class Account(BaseModel):
    """A mail server, and who we are there."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
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
    def _as_written(cls, value: Any) -> Any:
        return str(value).lower() if isinstance(value, bool | str) else value

    @field_validator("username")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("a username has no control characters")
        return value

    @field_validator("password")
    @classmethod
    def _without_ends(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value() or any(char in value.get_secret_value() for char in "\r\n\0"):
            raise ValueError("a password is not empty, and has no line ends")
        return value

    @model_validator(mode="after")
    def _safe(self) -> Account:
        if self.tls == "false" and not is_here(self.host) and self.host.lower() != "localhost":
            raise ValueError("tls: false would send the password in the clear. It is for this machine only")
        return self


def is_here(address: str) -> bool:
    """Whether the address is this machine's own."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\["\\])*")|([()])|([^\s()"\\{%]+))')

_NAMES = "ALL ANSWERED DELETED DRAFT FLAGGED NEW OLD RECENT SEEN UNANSWERED UNDELETED UNDRAFT UNFLAGGED UNSEEN"

_PLAIN = frozenset(_NAMES.split())

_TEXT = frozenset({"BCC", "BODY", "CC", "FROM", "SUBJECT", "TEXT", "TO", "X-GM-RAW"})

_DATE = frozenset({"BEFORE", "ON", "SENTBEFORE", "SENTON", "SENTSINCE", "SINCE"})

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_DAY = re.compile(rf"\d{{1,2}}-({'|'.join(_MONTHS)})-\d{{4}}", re.IGNORECASE)

_ATOM = re.compile(r"[A-Za-z0-9_$.-]{1,100}")

_DEEPEST = 20


def quoted(text: str) -> str:
    """A quoted string. ValueError for what cannot stand in one."""
    if not text.isascii() or not text.isprintable():
        raise ValueError("only plain letters can be searched for by IMAP: no accents, no line ends")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def day(moment: date) -> str:
    return f"{moment.day:02}-{_MONTHS[moment.month - 1]}-{moment.year:04}"


def folder_name(name: str) -> str:
    """The quoted name of a folder in the alphabet of IMAP (modified UTF-7)."""
    if not name or not name.isprintable() or len(name) > 300:
        raise ValueError("a folder has a name, without line ends")
    pieces = re.split(r"([^\x20-\x7e]+)", name)
    return quoted("".join(_shifted(piece) if at % 2 else piece.replace("&", "&-") for at, piece in enumerate(pieces)))


def _shifted(text: str) -> str:
    packed = base64.b64encode(text.encode("utf-16-be")).decode().rstrip("=")
    return f"&{packed.replace('/', ',')}-"


def search_keys(text: str) -> str:
    """The search, understood and written again. ValueError says what is wrong with it."""
    words: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"a search has no {text[at:].strip()[:1]!r} here")
        words.append(found[0].strip())
        at = found.end()
    if not words:
        raise ValueError("the search is empty: write ALL for everything")
    written: list[str] = []
    while words:
        written.append(_key(words, _DEEPEST))
    return " ".join(written)


def _key(words: list[str], depth: int) -> str:
    word = _next(words).upper()
    if not depth:
        raise ValueError("the search is nested too deep")
    if word == "(":
        inner = []
        while words and words[0] != ")":
            inner.append(_key(words, depth - 1))
        if not words or not inner:
            raise ValueError("the search has a ( without a ), or with nothing in it")
        words.pop(0)
        return f"({' '.join(inner)})"
    if word == "NOT":
        return f"NOT {_key(words, depth - 1)}"
    if word == "OR":
        return f"OR {_key(words, depth - 1)} {_key(words, depth - 1)}"
    return word if word in _PLAIN else f"{word} {_value(word, words)}"


def _value(word: str, words: list[str]) -> str:
    if word in _TEXT:
        return quoted(_bare(_next(words)))
    if word == "HEADER":
        return f"{quoted(_bare(_next(words)))} {quoted(_bare(_next(words)))}"
    if word in _DATE:
        return _matching(_DAY, _bare(_next(words)), f"{word} needs a day such as 5-Jan-2026")
    if word in ("LARGER", "SMALLER"):
        return _matching(re.compile(r"\d{1,10}"), _next(words), f"{word} needs a number of bytes")
    if word in ("KEYWORD", "UNKEYWORD"):
        return _matching(_ATOM, _next(words), f"{word} needs the name of a flag")
    raise ValueError(f'{word[:40]!r} is no word of an IMAP search: write UNSEEN, FROM ana, SUBJECT "new lead" …')


def _matching(pattern: re.Pattern[str], word: str, otherwise: str) -> str:
    if not pattern.fullmatch(word):
        raise ValueError(otherwise)
    return word


def _next(words: list[str]) -> str:
    if not words:
        raise ValueError("the search ends too early: something is missing at its end")
    return words.pop(0)


def _bare(word: str) -> str:
    if word in "()":
        raise ValueError("the search has a ( or ) where a text should be")
    return word[1:-1].replace('\\"', '"').replace("\\\\", "\\") if word.startswith('"') else word


_FETCH_TOKEN = re.compile(rb'\(|\)|"(?:[^"\\]|\\.)*"|[^\s()"]+')

_MARK = re.compile(rb"\{\d+\+?\}\s*$")


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """A mail as it came: its beginning, and how large all of it is."""

    uid: int
    flags: tuple[str, ...] = ()
    came: str = ""
    size: int = 0
    data: bytes = b""


def raws_of(answer: Sequence[Any]) -> list[Raw]:
    """The mails in the answer that have a uid and a body; a server may tell of other things meanwhile."""
    found = [raw for items in _lists(_tokens(answer)) if (raw := _raw(items)) is not None]
    return list({raw.uid: raw for raw in found}.values())


class _Literal(bytes):
    """Text of the mail, which is no syntax whatever it holds."""


def _tokens(answer: Sequence[Any]) -> Iterator[bytes]:
    for piece in answer:
        if isinstance(piece, tuple) and len(piece) == 2:
            yield from _FETCH_TOKEN.findall(_MARK.sub(b"", piece[0]))
            yield _Literal(piece[1])
        elif isinstance(piece, bytes):
            yield from _FETCH_TOKEN.findall(piece)


def _lists(tokens: Iterator[bytes]) -> Iterator[list[Any]]:
    """Each outermost list; those inside are lists too."""
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
            stack[-1].append(_unquoted(token))


def _unquoted(token: bytes) -> bytes:
    return re.sub(rb"\\(.)", rb"\1", token[1:-1]) if token.startswith(b'"') and len(token) > 1 else token


def _raw(items: list[Any]) -> Raw | None:
    named = {bytes(key).upper(): value for key, value in zip(items[::2], items[1::2], strict=False) if _is_word(key)}
    body = next((value for key, value in named.items() if key.startswith(b"BODY[")), None)
    uid = _fetch_number(named.get(b"UID"))
    if not uid or not isinstance(body, bytes):
        return None
    flags = named.get(b"FLAGS")
    return Raw(
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
        self._tls = None if account.tls == "false" else tls_context(account.ca_bundle)
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
        shut_down(self.sock)

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
        places = allowed_addresses(account.host, account.port, self._allow_private)
        if account.tls == "false" and not all(is_here(str(where[0])) for where in places):
            raise NeedsAttention(f"{account.host} is not on this machine, and tls is false", fix="Use tls: true")
        if self._broken_off:
            raise TimeoutError
        self.sock = connect(places, timeout)
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
