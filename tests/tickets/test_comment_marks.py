"""The lines by which our comments are recognised."""

from __future__ import annotations

import pytest

from harken.ticket import Comment
from harken.tickets import is_ours, receipt_key
from harken.tickets.comment_marks import NOTE, Receipt, is_sticky, notice_line, receipt_line, receipts_in

KEY = receipt_key("a secret")
RECEIPT = Receipt(run="0b7c", pipeline="fix bug/ü", revision="9f3e", state="done")
LINE = receipt_line(RECEIPT, KEY, "github", "7@900")


def read(text: str, key: bytes = KEY, tracker: str = "github", ticket: str = "7@900") -> list[Receipt]:
    return list(receipts_in(text, key, tracker, ticket))


@pytest.mark.parametrize("text", [LINE, f"`{LINE}`", f"before\n\n`{LINE}`\n\nafter", f"a\n{LINE}\nb"])
def test_a_receipt_is_read_wherever_it_is_in_the_comment(text: str) -> None:
    assert read(text) == [RECEIPT]


@pytest.mark.parametrize(
    "text",
    [
        LINE.replace("state=done", "state=failed"),
        LINE.replace("run=0b7c", "run=0b7d"),
        LINE[:-1] + ("0" if LINE[-1] != "0" else "1"),
        LINE[:-1],
        f"> {LINE}",
        f"he said {LINE}",
        "harken-receipt v1 run= pipeline= revision= state=done mac=" + "0" * 32,
        "",
    ],
)
def test_a_receipt_that_was_changed_cut_or_quoted_is_none(text: str) -> None:
    assert read(text) == []


def test_a_receipt_counts_only_for_its_ticket_and_our_key() -> None:
    assert read(LINE, ticket="8@901") == []
    assert read(LINE, tracker="gitlab") == []
    assert read(LINE, key=receipt_key("another secret")) == []


def test_a_name_cannot_forge_another_field() -> None:
    forged = Receipt(run="a pipeline=b", pipeline="x\nharken-receipt v1", revision="", state="done")
    line = receipt_line(forged, KEY, "github", "7@900")
    assert "\n" not in line
    assert read(line) == [forged]


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (f"Done\n\n`{LINE}`\n\nWritten by Harken", True),
        (f"@leo this failed\n\n`{notice_line('run:failed:1')}`", True),
        (f"put back\n\n{NOTE}\n\nWritten by Harken", True),
        (f"<!--\n{NOTE} 0123\n-->\nhello", True),
        ("approve", False),
        ("> harken-note\nwhat does this mean?", False),
        ("I read about harken-notebooks", False),
        ("", False),
    ],
)
def test_our_own_comments_are_recognised(text: str, ours: bool) -> None:
    assert is_ours(Comment(id="1", text=text)) is ours


def test_only_the_comment_with_the_receipt_is_sticky() -> None:
    assert is_sticky(Comment(id="1", text=f"Done\n\n`{LINE}`\n\nend"))
    assert not is_sticky(Comment(id="1", text=notice_line("x")))
