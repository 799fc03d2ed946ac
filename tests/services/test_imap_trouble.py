"""IMAP against servers that lie, stall and flood, and queries that try to be commands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.services.imap import Account, Folder, Query
from harken.services.imap.api import parse_fetch
from harken.services.imap.query import folder_name, search_keys
from harken.source import Batch, Host
from harken.testing import START

PASSWORD = "not-a-real-password"
GREETING = b"* OK ready\r\n"


@asynccontextmanager
async def scripted(
    replies: Mapping[str, bytes] = {}, greeting: bytes = GREETING, heard: list[bytes] | None = None
) -> AsyncIterator[int]:
    """A server that answers each command with what is said here, and with OK otherwise; b"" means that it hangs."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        while line := await _line(reader):
            tag, _, rest = line.partition(b" ")
            words = rest.split()
            verb = (words[1] if words[0] == b"UID" else words[0]).decode().lower()
            text = replies.get(verb, _usual(verb)).replace(b"TAG", tag)
            if heard is not None:
                heard.append(line)
            if not text:
                await reader.read()
            writer.write(text)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ConnectionError:
        return b""  # it has enough of us


def _usual(verb: str) -> bytes:
    told = {
        "capability": b"* CAPABILITY IMAP4rev1 AUTH=LOGIN\r\n",
        "examine": b"* 1 EXISTS\r\n* OK [UIDVALIDITY 7] .\r\n* OK [UIDNEXT 10] .\r\n",
        "search": b"* SEARCH 9\r\n",
        "fetch": b"* 1 FETCH (UID 9 RFC822.SIZE 14 BODY[]<0> {14}\r\nSubject: x\r\n\r\n)\r\n",
        "logout": b"* BYE\r\n",
    }
    return told.get(verb, b"") + b"TAG OK done\r\n"


async def poll_once(port: int, host: Host, cursor: Any = None, **account: Any) -> Batch:
    settings = {"host": "127.0.0.1", "port": port, "username": "ana", "password": PASSWORD, "tls": False, "timeout": 2}
    return await Folder(Query(), Account.model_validate({**settings, **account}), host).poll(cursor, START)


async def trouble(host: Host, greeting: bytes = GREETING, timeout: float = 2, **replies: bytes) -> HarkenError:
    async with scripted(replies, greeting) as port:
        with pytest.raises(HarkenError) as caught:
            await poll_once(port, host, timeout=timeout)
    assert PASSWORD not in f"{caught.value}{caught.value!r}{caught.value.__cause__!r}"
    return caught.value


class TestServers:
    async def test_the_script_itself_is_a_server(self, host: Host):
        async with scripted() as port:
            batch = await poll_once(port, host)
        assert [event.data["subject"] for event in batch.events] == ["x"]

    @pytest.mark.parametrize(
        "reply",
        [
            b"garbage\r\n",
            b"\xff\xfe\x00\r\n" * 3,
            b"* BYE go away\r\n",
            b"* 1 FETCH (BODY[] {99999999999}\r\nx",
            b"* " + b"x" * 2_000_000 + b"\r\n",
        ],
    )
    async def test_garbage_is_tried_later(self, host: Host, reply: bytes):
        assert isinstance(await trouble(host, fetch=reply), RetryLater)

    @pytest.mark.parametrize(
        "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x01\r\n", b"* BYE busy\r\n", b"\r\n"]
    )
    async def test_what_is_no_imap_server_is_tried_later(self, host: Host, greeting: bytes):
        assert isinstance(await trouble(host, greeting), RetryLater)

    @pytest.mark.parametrize("verb", ["capability", "login", "examine", "search", "fetch"])
    async def test_a_server_that_hangs_is_left_after_the_time_limit(self, host: Host, verb: str):
        async with scripted({verb: b""}) as port:
            began = time.monotonic()
            with pytest.raises(RetryLater, match=r"longer than 0\.3 s") as caught:
                await poll_once(port, host, timeout=0.3)
        assert caught.value.reason == "timeout"
        assert time.monotonic() - began < 100

    async def test_a_server_that_never_stops_talking_is_left(self, host: Host):
        flood = (b"* OK " + b"still here " * 100 + b"\r\n") * 20_000
        # time enough for a busy machine to read all of it: it is the number of bytes that ends the conversation
        problem = await trouble(host, search=flood, timeout=100)
        assert isinstance(problem, RetryLater)
        assert problem.reason == "failed"

    async def test_a_server_that_does_not_wait_for_the_goodbye_has_still_answered(self, host: Host):
        async with scripted({"logout": b"\r\n"}) as port:
            assert len((await poll_once(port, host)).events) == 1

    @pytest.mark.parametrize(
        ("reply", "kind", "said"),
        [
            (b"TAG NO [AUTHENTICATIONFAILED] not-a-real-password is wrong\r\n", NeedsAttention, "AUTHENTICATIONFAILED"),
            (b"TAG NO no code at all\r\n", NeedsAttention, "harken integrations imap configure"),
            (b"TAG NO [UNAVAILABLE] later\r\n", RetryLater, "UNAVAILABLE"),
            (b"TAG BAD what\r\n", NeedsAttention, "username and password"),
            (b"* BYE too many\r\n", RetryLater, "failed"),
        ],
    )
    async def test_a_refusal_to_sign_in_is_sorted_by_its_code(self, host: Host, reply: bytes, kind: type, said: str):
        problem = await trouble(host, login=reply)
        assert (type(problem), said in str(problem)) == (kind, True)

    async def test_a_server_that_lets_nobody_in_without_tls_needs_attention(self, host: Host):
        caps = b"* CAPABILITY IMAP4rev1 LOGINDISABLED\r\nTAG OK .\r\n"
        assert isinstance(await trouble(host, capability=caps), NeedsAttention)

    async def test_without_starttls_no_password_is_sent(self, host: Host):
        heard: list[bytes] = []
        async with scripted(heard=heard) as port:
            with pytest.raises(RetryLater):
                await poll_once(port, host, tls="starttls")
        assert [line.split()[1] for line in heard] == [b"CAPABILITY"]

    async def test_a_search_that_the_server_does_not_know_needs_attention(self, host: Host):
        assert isinstance(await trouble(host, search=b"TAG BAD unknown key\r\n"), NeedsAttention)

    async def test_a_folder_without_a_validity_is_not_read(self, host: Host):
        assert isinstance(await trouble(host, examine=b"* 1 EXISTS\r\nTAG OK .\r\n"), RetryLater)

    @pytest.mark.parametrize("told", [b"* SEARCH 3\r\n", b"* SEARCH\r\n", b"* SEARCH 99999999999 -1 x\r\n", b""])
    async def test_what_was_read_before_is_not_read_again_whatever_the_search_says(self, host: Host, told: bytes):
        cursor = {"folder": "INBOX", "validity": 7, "last": 8, "floor": 1, "read_at": 2, "since": 1}
        async with scripted({"search": told + b"TAG OK .\r\n"}) as port:
            batch = await poll_once(port, host, cursor)
        assert (list(batch.events), batch.cursor["last"]) == ([], 9)

    async def test_a_mail_that_is_gone_before_it_is_fetched_is_passed(self, host: Host):
        async with scripted({"fetch": b"TAG OK .\r\n"}) as port:
            batch = await poll_once(port, host)
        assert (list(batch.events), batch.more, batch.cursor["last"]) == ([], False, 9)


class TestFetched:
    def test_literals_and_quoted_texts_are_read_alike(self):
        answer = [
            (b'1 (UID 5 FLAGS (\\Seen $Own) INTERNALDATE "x" RFC822.SIZE 3 BODY[]<0> {3}', b"a)("),
            b")",
            b'2 (BODY[]<0> "q \\"x\\"" UID 6)',
            b"3 (UID 7 BODY[]<0> NIL)",
            b"4 (FLAGS (\\Seen))",
            None,
        ]
        found = parse_fetch(answer)
        assert [(raw.uid, raw.data) for raw in found] == [(5, b"a)("), (6, b'q "x"'), (7, b"")]
        assert (found[0].flags, found[0].came, found[0].size) == (("Seen", "$Own"), "x", 3)

    @pytest.mark.parametrize(
        "answer",
        [
            [b"(" * 100_000],
            [b")" * 1000],
            [b'1 (UID "'],
            [(b"1 (UID {3}", b"abc"), b")"],
            [b"1 (UID 99999999999999999999 BODY[] x)"],
            [b"1 (UID -1 BODY[] x)"],
            [(b"", b"")],
            ["text", 7, ()],
        ],
    )
    def test_nonsense_is_no_mail(self, answer: list[Any]):
        assert parse_fetch(answer) == []


class TestWords:
    @pytest.mark.parametrize(
        ("written", "said"),
        [
            ("unseen", "UNSEEN"),
            ('FROM ana SUBJECT "new \\"lead\\""', 'FROM "ana" SUBJECT "new \\"lead\\""'),
            ("OR (FROM a NOT SEEN) LARGER 5", 'OR (FROM "a" NOT SEEN) LARGER 5'),
            ("SINCE 5-Jan-2026 KEYWORD $Own", "SINCE 5-Jan-2026 KEYWORD $Own"),
            ('HEADER X-Lead "yes"', 'HEADER "X-Lead" "yes"'),
        ],
    )
    def test_a_search_is_understood_and_written_again(self, written: str, said: str):
        assert search_keys(written) == said

    @pytest.mark.parametrize(
        "written",
        [
            "",
            "UNSEEN\r\nA1 DELETE INBOX",
            'FROM "a\r\nA1 DELETE INBOX"',
            "FROM {5}",
            "FROM {5+}\r\nhello",
            'FROM "open',
            "FROM",
            "OR SEEN",
            "(SEEN",
            "SEEN)",
            "()",
            "NOT",
            "SINCE yesterday",
            "LARGER many",
            "KEYWORD a*b",
            "UID 1:*",
            "CHARSET UTF-8 ALL",
            "FROM señor",
            "(" * 100 + "SEEN" + ")" * 100,
            'FROM "\x00"',
        ],
    )
    def test_what_is_no_search_is_refused(self, written: str):
        with pytest.raises(ValidationError):
            Query(search=written)

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("INBOX", '"INBOX"'),
            ("a&b", '"a&-b"'),
            ("日本語", '"&ZeVnLIqe-"'),
            ('x"\\', '"x\\"\\\\"'),
            ("🚨", '"&2D3eqA-"'),
        ],
    )
    def test_a_folders_name_is_written_in_the_alphabet_of_imap(self, name: str, said: str):
        assert folder_name(name) == said

    @pytest.mark.parametrize("name", ["", "a\r\nA1 DELETE INBOX", "a\x00", "x" * 400])
    def test_what_is_no_folder_is_refused(self, name: str):
        with pytest.raises(ValidationError):
            Query(folder=name)


class TestAccount:
    @pytest.mark.parametrize(
        "given", [{"tls": False, "host": "mail.example.com"}, {"username": "a\r\nb"}, {"password": "a\nb"}]
    )
    def test_an_account_that_is_not_safe_is_refused(self, given: dict[str, Any]):
        whole = {"host": "127.0.0.1", "username": "ana", "password": PASSWORD, **given}
        with pytest.raises(ValidationError) as caught:
            Account.model_validate(whole)
        assert PASSWORD not in str(caught.value)

    @pytest.mark.parametrize("tls", [True, "true", "TRUE", "starttls", "false"])
    def test_tls_is_written_as_people_write_it(self, tls: Any):
        given = {"host": "localhost", "username": "ana", "password": PASSWORD, "tls": tls}
        assert Account.model_validate(given).tls == str(tls).lower()
