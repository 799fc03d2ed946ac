"""Messages as a service takes them."""

from __future__ import annotations

import pytest

from harken.errors import NeedsAttention
from harken.kit.message_text import (
    cut,
    message_mark,
    one_line,
    retry_seconds,
    title_and_text,
    utf8_length,
    utf16_length,
)
from harken.source import Host, Message

FAMILY = "👩‍👩‍👧‍👦"


def test_a_text_that_fits_is_left_alone():
    assert cut("👍" * 50, 100) == "👍" * 50


def test_a_cut_text_fits_and_says_how_much_is_missing():
    short = cut("word " * 1000, 100)
    assert utf16_length(short) <= 100
    kept = short.partition("…")[0]
    assert short == f"{kept}… [{5000 - len(kept):,} more characters]"


@pytest.mark.parametrize("size", [utf16_length, utf8_length])
@pytest.mark.parametrize("text", ["x" * 3000, "👍" * 3000, FAMILY * 500, "é" * 3000, "日本語" * 1000, " " * 3000])
def test_a_cut_text_is_never_too_long(text: str, size):
    assert 0 < size(cut(text, 200, size)) <= 200


@pytest.mark.parametrize("most", range(60, 90))
def test_an_emoji_of_several_parts_is_not_taken_apart(most: int):
    kept = cut(FAMILY * 40, most).partition("…")[0]
    assert kept == FAMILY * (len(kept) // len(FAMILY))


@pytest.mark.parametrize("most", range(60, 70))
def test_an_emoji_keeps_its_skin(most: int):
    kept = cut("👍🏽" * 100, most).partition("…")[0]
    assert kept == "👍🏽" * (len(kept) // 2)


def test_words_are_not_taken_apart():
    assert cut("antidisestablishment " * 20, 100).partition("…")[0].endswith("antidisestablishment")


def test_the_title_stands_above_the_text():
    assert title_and_text(Message(to="x", title="Disk\r\nfull", text="on host 7\n")) == "Disk full\n\non host 7"


def test_nothing_to_say_needs_attention():
    with pytest.raises(NeedsAttention):
        title_and_text(Message(to="x", title="\r\n", text="  \n"))


def test_a_line_has_no_control_characters():
    assert one_line("a\r\nb\x00c\u2028d\x1be\ud83d") == "a b c d e"


def test_a_mark_is_that_of_the_key(host: Host):
    first, again = (message_mark(Message(to=to, text=to, idempotency_key="run-1/a"), host) for to in ("x", "y"))
    assert first == again
    assert first != message_mark(Message(to="x", text="x", idempotency_key="run-1/b"), host)


def test_a_message_without_a_key_is_like_no_other(host: Host):
    message = Message(to="x", text="x")
    assert message_mark(message, host) != message_mark(message, host)


@pytest.mark.parametrize("value", [None, "soon", -1, True, float("nan"), float("inf"), {}])
def test_a_wait_that_is_none_is_not_believed(value: object):
    assert retry_seconds(value) is None


def test_a_wait_may_be_a_fraction():
    assert retry_seconds(0.65) == 0.65
