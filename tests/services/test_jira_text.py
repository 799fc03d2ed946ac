"""Documents of Jira Cloud read as text, and text written as documents."""

from __future__ import annotations

from typing import Any

import pytest

from harken.services.jira.text import document_of, mentions, text_in


def doc(*content: Any) -> dict[str, Any]:
    return {"type": "doc", "version": 1, "content": list(content)}


def text(value: str, **marks: Any) -> dict[str, Any]:
    listed = [{"type": "link", "attrs": {"href": marks["href"]}}] if marks else [{"type": "strong"}]
    return {"type": "text", "text": value, "marks": listed}


def block(kind: str, *content: Any, **attrs: Any) -> dict[str, Any]:
    return {"type": kind, "content": list(content), "attrs": attrs}


def said(value: str) -> dict[str, Any]:
    return block("paragraph", text(value))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (said("plain"), "plain"),
        (block("heading", text("Title"), level=2), "Title"),
        (block("paragraph", text("a"), {"type": "hardBreak"}, text("b")), "a\nb"),
        (block("paragraph", text("see "), text("here", href="https://x.example")), "see here (https://x.example)"),
        (block("paragraph", text("https://x.example", href="https://x.example")), "https://x.example"),
        (
            block("paragraph", {"type": "mention", "attrs": {"id": "1", "text": "@Mia"}}, text(" look")),
            "@Mia look",
        ),
        (block("paragraph", text("hi "), {"type": "mention", "attrs": {"id": "557058:1"}}), "hi @557058:1"),
        (
            block("paragraph", text("a "), {"type": "inlineExtension", "attrs": {"text": "macro"}}, text(" b")),
            "a macro b",
        ),
        (block("paragraph", {"type": "emoji", "attrs": {"shortName": ":smile:", "text": "😄"}}), "😄"),
        (block("paragraph", {"type": "emoji", "attrs": {"shortName": ":custom:"}}), ":custom:"),
        (block("paragraph", {"type": "inlineCard", "attrs": {"url": "https://x.example/1"}}), "https://x.example/1"),
        (block("paragraph", {"type": "date", "attrs": {"timestamp": "1767600000000"}}), "2026-01-05"),
        (block("paragraph", {"type": "date", "attrs": {"timestamp": "soon"}}), "soon"),
        (block("paragraph", {"type": "status", "attrs": {"text": "DONE"}}), "DONE"),
        (block("codeBlock", text("x = 1\ny = 2"), language="python"), "```python\nx = 1\ny = 2\n```"),
        (block("blockquote", said("one"), said("two")), "> one\n>\n> two"),
        (block("panel", said("careful"), panelType="warning"), "careful"),
        (block("rule"), "---"),
        (block("bulletList", block("listItem", said("a")), block("listItem", said("b"))), "- a\n- b"),
        (block("orderedList", block("listItem", said("a")), block("listItem", said("b"))), "1. a\n2. b"),
        (
            block("bulletList", block("listItem", said("a"), block("orderedList", block("listItem", said("b"))))),
            "- a\n  1. b",
        ),
        (block("taskList", block("taskItem", text("do it"), state="TODO")), "- do it"),
        (
            block("table", block("tableRow", block("tableHeader", said("k")), block("tableCell", said("v")))),
            "k | v",
        ),
        (block("expand", said("inside"), title="More"), "More\n\ninside"),
        (block("mediaSingle", {"type": "media", "attrs": {"alt": "a picture"}}), "a picture"),
        (block("someFutureNode", block("another", said("still here"))), "still here"),
    ],
)
def test_each_kind_of_node_is_readable(node: Any, expected: str):
    assert text_in(doc(node)) == expected


def test_paragraphs_are_parted_and_wiki_text_stays():
    assert text_in(doc(said("one"), said("two"))) == "one\n\ntwo"
    assert text_in("h1. Wiki *text*") == "h1. Wiki *text*"


@pytest.mark.parametrize("value", [None, 5, [], True, {}, {"type": None}, {"content": "x"}, {"content": [None, 1, []]}])
def test_what_is_no_document_is_empty_text(value: Any):
    assert text_in(value) == ""


def test_a_document_without_a_bottom_is_cut():
    node: dict[str, Any] = said("bottom")
    for _ in range(5000):
        node = {"type": "panel", "content": [node]}
    assert text_in(doc(node)) == "…"
    assert not mentions(doc(node), {"me"})


def test_a_mention_is_of_that_user_only():
    mention = block("paragraph", {"type": "mention", "attrs": {"id": "557058:Ab-1"}})
    assert mentions(doc(mention), {"557058:ab-1"})
    assert not mentions(doc(mention, said("557058:ab-12")), {"557058:ab-12"})
    assert mentions("ask [~JSmith] or [~accountid:abc]", {"jsmith"})
    assert mentions("ask [~JSmith] or [~accountid:abc]", {"abc"})
    assert not mentions("ask jsmith or [~jsmithers]", {"jsmith"})


def test_text_becomes_a_document_and_comes_back():
    written = "Hello,\nworld 🎫\n\n\nsecond paragraph\r\nends"
    made = document_of(written)
    assert [node["type"] for node in made["content"]] == ["paragraph", "paragraph"]
    assert text_in(made) == "Hello,\nworld 🎫\n\nsecond paragraph\nends"


def test_no_empty_text_node_is_sent_because_jira_refuses_it():
    made = document_of("a\n\n\n\n \n\nb\n")
    nodes = [node for paragraph in made["content"] for node in paragraph["content"]]
    assert [node["text"] for node in nodes] == ["a", "b"]
