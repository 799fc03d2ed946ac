"""The search for our own secrets: one pass over an event however many there are, with the same result as one by one."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from harken.app.redacting_services import RedactingPush
from harken.event import Event
from harken.http.known_secret_redaction import (
    _tokens_of,
    _words_of,
    contains_token,
    hide_tokens,
    redact,
    restore_tokens,
    scrub,
    scrub_bytes,
)
from harken.http.secret_search import SLICE, TextSearch
from harken.source import Request

THOUSAND = frozenset(f"whsec_{number:04}-of-a-webhook" for number in range(1000))


class CountedBody(bytes):
    """Counts how often something is looked for in it."""

    looks = 0

    def __contains__(self, text: Any) -> bool:
        self.looks += 1
        return super().__contains__(text)


def replaced_one_by_one(body: bytes, texts: Sequence[bytes]) -> bytes:
    for text in texts:
        body = body.replace(text, b"***")
    return body


def test_the_search_for_our_own_secrets_is_one_pass_with_a_thousand_webhooks() -> None:
    clean, dirty = CountedBody(b'{"text":"nothing of ours"}'), CountedBody(b'{"text":"whsec_0007-of-a-webhook"}')
    assert not contains_token(clean, THOUSAND)
    assert clean.looks == 0
    assert contains_token(dirty, THOUSAND)
    assert dirty.looks < 20


def test_a_log_line_loses_two_of_a_thousand_secrets_in_other_forms() -> None:
    basic = base64.b64encode(b"a:whsec_0001-of-a-webhook").decode()
    line = redact(f"GET /x?t={quote('whsec_0999-of-a-webhook')} by {basic}", THOUSAND)
    assert line.startswith("GET /x?t=*** by ")
    assert len(line) < 30


# few letters, so that texts overlap, contain each other, and meet at a mask
PIECES = st.text("ab*", min_size=1, max_size=4).map(str.encode)


@settings(max_examples=400, deadline=None)
@given(st.sets(PIECES, min_size=1, max_size=12), st.lists(PIECES, max_size=12).map(b"".join))
def test_overlapping_texts_are_all_found(texts: set[bytes], body: bytes) -> None:
    ordered = sorted(texts, key=lambda text: (-len(text), text))
    found = TextSearch(ordered).found_in(body)
    assert [ordered[at] for at in found] == [text for text in ordered if text in body]


SECRETS = st.lists(st.text("aX1*", min_size=12, max_size=26), min_size=1, max_size=40, unique=True)


@settings(max_examples=300, deadline=None)
@given(SECRETS, st.data())
def test_many_secrets_are_masked_as_one_by_one(secrets: list[str], data: st.DataObject) -> None:
    pieces = st.one_of(st.sampled_from(secrets), st.sampled_from(secrets).map(lambda text: text[3:]), st.text("aX1*"))
    text = "".join(data.draw(st.lists(pieces, max_size=6)))
    texts = _tokens_of(secrets).search.texts
    assert [len(one) for one in texts] == sorted(map(len, texts), reverse=True)
    assert scrub_bytes(text.encode(), secrets) == replaced_one_by_one(text.encode(), texts)
    assert contains_token(text.encode(), secrets) == any(one in text.encode() for one in texts)
    words = _words_of(frozenset(secrets)).search.texts
    assert redact(text, secrets).encode() == replaced_one_by_one(text.encode(), words)


def test_a_mark_at_the_border_of_two_slices_is_found() -> None:
    texts = [f"text number {number}".encode() for number in range(20)]
    for before in range(SLICE - 20, SLICE + 2):
        assert TextSearch(texts).found_in(b"." * before + texts[7] + b"." * SLICE) == [7]


def test_secrets_that_begin_and_end_alike_are_told_apart() -> None:
    texts = [f"https://hooks.example.com/{number:06}/apps.example.com".encode() for number in range(2000)]
    body = CountedBody(b"see https://hooks.example.com/001234/apps.example.com")
    assert TextSearch(texts).found_in(body) == [1234]
    assert body.looks < 10


def test_the_longest_of_many_secrets_wins() -> None:
    secrets = [*THOUSAND, "whsec_0007-of-a-webhook-and-more"]
    assert scrub_bytes(b"whsec_0007-of-a-webhook-and-more", secrets) == b"***"
    assert scrub({"a": ["whsec_0007-of-a-webhook-and-mor"]}, secrets) == {"a": ["***-and-mor"]}


def test_a_secret_that_only_a_mask_completes_is_masked_too() -> None:
    secrets = ["tok3n-aaaa-bbbb", "x***y-1234567", *THOUSAND]
    assert scrub_bytes(b"a xtok3n-aaaa-bbbby-1234567", secrets) == b"a ***"


def test_a_cursor_with_one_of_many_secrets_gets_it_back() -> None:
    cursor = {"next": "https://x.example/?token=whsec_0007-of-a-webhook&page=2"}
    hidden = hide_tokens(cursor, THOUSAND)
    assert "whsec_0007" not in str(hidden)
    assert restore_tokens(hidden, ["whsec_0007-of-a-webhook"]) == cursor


async def test_secrets_that_change_at_a_reload_are_looked_for() -> None:
    class Echo:
        async def receive(self, request: Request) -> list[Event]:
            return [Event(subject="s", key="k", type="t", data={}, raw=request.body)]

    known = {"now": THOUSAND}
    push = RedactingPush(Echo(), lambda: known["now"])
    request = Request(headers={}, body=b'{"t":"an0ther-secret-of-ours"}', received_at=datetime(2026, 1, 1, tzinfo=UTC))
    [before] = await push.receive(request)
    assert before.raw == request.body
    known["now"] = THOUSAND | {"an0ther-secret-of-ours"}
    [after] = await push.receive(request)
    assert after.data == {"t": "***"}
