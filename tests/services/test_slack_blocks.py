"""Messages that have no text, because an app put all of it into blocks or attachments."""

from __future__ import annotations

from typing import Any

import pytest

from harken.services.slack.event import is_from_bot
from harken.services.slack.text import mentioned_users, raw_text, to_plain_text


def section(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": False}, **more}


def rich(*elements: dict[str, Any], kind: str = "rich_text_section") -> dict[str, Any]:
    return {"type": "rich_text", "elements": [{"type": kind, "elements": list(elements)}]}


def plain(text: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": text}


BUTTON = {"type": "actions", "elements": [{"type": "button", "text": plain("Acknowledge", "plain_text")}]}
TABLE = {"type": "table", "rows": [[plain("host", "raw_text"), plain("web-1", "raw_text")], "odd"]}
IMAGE = {"type": "image", "image_url": "https://x.example/i.png", "alt_text": "a graph"}


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([section("*disk full* on <https://x.example|web-1>")], "*disk full* on <https://x.example|web-1>"),
        ([{"type": "header", "text": plain("Alert", "plain_text")}, section("down")], "Alert\ndown"),
        ([section("a", fields=[plain("*env*", "mrkdwn"), plain("prod", "plain_text")])], "a\n*env*\nprod"),
        ([{"type": "context", "elements": [plain("by bot", "mrkdwn"), IMAGE]}], "by bot\na graph"),
        ([section("down"), BUTTON, {"type": "divider"}], "down"),
        ([{"type": "markdown", "text": "**bold**"}], "**bold**"),
        ([TABLE], "host\nweb-1"),
        ([rich(plain("look "), {"type": "user", "user_id": "U1"}, plain(" a<b"))], "look <@U1> a&lt;b"),
        ([rich({"type": "link", "url": "https://x.example"})], "<https://x.example>"),
        ([rich({"type": "link", "url": "https://x.example", "text": "here"})], "<https://x.example|here>"),
        ([rich({"type": "channel", "channel_id": "C1"}, {"type": "emoji", "name": "wave"})], "<#C1>:wave:"),
        ([rich({"type": "broadcast", "range": "here"})], "<!here>"),
        ([rich(rich(plain("a"))["elements"][0], rich(plain("b"))["elements"][0], kind="rich_text_list")], "a\nb"),
    ],
)
@pytest.mark.parametrize("text", ["", None, "This content can't be displayed."])
def test_blocks_stand_in_for_a_text(blocks: list[Any], expected: str, text: Any):
    assert raw_text({"text": text, "blocks": blocks}) == expected


def test_a_text_goes_before_its_blocks():
    assert raw_text({"text": "short", "blocks": [section("long")]}) == "short"


def test_a_mention_within_blocks_is_a_mention():
    text = raw_text({"text": "", "blocks": [rich({"type": "user", "user_id": "U1"}, plain(" & co <3"))]})
    assert mentioned_users(text) == ["U1"]
    assert to_plain_text(text, lambda id: "jay", lambda id: "") == "@jay & co <3"


@pytest.mark.parametrize(
    ("attachment", "expected"),
    [
        ({"fallback": "disk full", "text": "details"}, "disk full"),
        ({"fallback": "[no preview available]", "blocks": [section("down")]}, "down"),
        ({"fallback": "[no preview available]", "pretext": "Hey", "title": "T", "text": "t"}, "Hey\nT\nt"),
        ({"color": "danger"}, ""),
    ],
)
def test_attachments_stand_in_for_a_text(attachment: dict[str, Any], expected: str):
    assert raw_text({"text": "", "attachments": [attachment]}) == expected


@pytest.mark.parametrize(
    "blocks", [None, 7, "x", [7, None], [{"type": 3}], [{"type": "section", "text": 4, "fields": 1}]]
)
def test_blocks_in_odd_shapes_say_nothing(blocks: Any):
    assert raw_text({"text": "", "blocks": blocks, "attachments": 7}) == ""


def test_blocks_within_blocks_without_end_are_cut():
    deep: dict[str, Any] = plain("bottom", "mrkdwn")
    for _ in range(2000):
        deep = {"type": "context", "elements": [deep]}
    assert raw_text({"text": "", "blocks": [deep]}) == ""


def test_slackbot_is_a_bot():
    assert is_from_bot({"user": "USLACKBOT", "text": "Reminder: stand-up."})
