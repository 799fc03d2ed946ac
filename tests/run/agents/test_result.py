"""What an agent hands in is checked for its form, and believed no further."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harken.errors import NeedsAttention
from harken.run.agents.result import AgentResult, Usage, is_session, read_result, usage_of


def handed_in(tmp_path: Path, content: bytes) -> tuple[AgentResult, list[str]]:
    (tmp_path / ".harken").mkdir()
    (tmp_path / ".harken/result.json").write_bytes(content)
    return read_result(tmp_path)


def test_without_a_file_the_exit_code_alone_counts(tmp_path: Path) -> None:
    assert read_result(tmp_path) == (AgentResult(), [])


def test_texts_are_cut_and_cleaned(tmp_path: Path) -> None:
    given = {"summary": "a\u200bb\x1b[2J" + "x" * 10_000, "questions": ["<!-- x -->", "y?" * 2_000, *"abcdefghijkl"]}
    result, warnings = handed_in(tmp_path, json.dumps(given).encode())
    assert result.summary.startswith("ab[2J")
    assert len(result.summary) == 4_001
    assert [len(question) for question in result.questions] == [1_001] + [1] * 9
    assert warnings == ["only 10 of 13 questions are asked"]


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://github.com/acme/shop/pull/7", True),
        ("javascript:alert(1)", False),
        ("https://me:pw@example.com/", False),
        ("https://example.com/ <script>", False),
        ("https://", False),
        ("https://[::1", False),
        ("https://example.com/" + "x" * 600, False),
    ],
)
def test_a_pull_request_is_named_by_a_web_address_only(url: str, kept: bool, tmp_path: Path) -> None:
    result, warnings = handed_in(tmp_path, json.dumps({"pr_url": url}).encode())
    assert (result.pr_url == url, bool(warnings)) == (kept, not kept)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"status": "great"}', b'{"summary": 7}', b'{"questions": "why"}', b"\xff", b"[" * 100_000],
)
def test_anything_else_is_not_a_result(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(NeedsAttention, match="is not valid"):
        handed_in(tmp_path, content)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        # Claude Code: the first line of stream-json, and its last
        ({"type": "system", "subtype": "init", "session_id": "a1-b2"}, Usage(session="a1-b2")),
        (
            {
                "type": "result",
                "session_id": "a1-b2",
                "total_cost_usd": 0.5,
                "usage": {"input_tokens": 7, "cache_read_input_tokens": 900, "output_tokens": 3},
            },
            Usage(session="a1-b2", tokens=10, usd=0.5),
        ),
        # Codex: exec --json
        ({"type": "thread.started", "thread_id": "th_1"}, Usage(session="th_1")),
        ({"type": "turn.completed", "usage": {"input_tokens": 5, "output_tokens": 4}}, Usage(tokens=9)),
        # and what nobody should say
        ({"session_id": "--resume", "total_cost_usd": -5, "usage": {"input_tokens": -9}}, Usage()),
        ({"session_id": "a b", "total_cost_usd": "1", "usage": [1]}, Usage()),
        ({"session_id": ["x"], "total_cost_usd": True, "usage": {"input_tokens": True}}, Usage()),
        ({"total_cost_usd": 1e300}, Usage(usd=100_000.0)),
        ({"usage": {"input_tokens": 10**18}}, Usage(tokens=10**10)),
    ],
)
def test_what_a_cli_tells_of_its_session_and_cost(line: dict[str, Any], told: Usage) -> None:
    assert usage_of(json.dumps(line).encode()) == told


def test_other_output_tells_nothing() -> None:
    assert [usage_of(line) for line in (b"", b"hello", b"[1]", b"{", b'{"total_cost_usd": NaN}')] == [None] * 5


def test_a_session_is_one_word_that_is_no_option() -> None:
    good = ["0b3f-11", "th_1", "a:b.c"]
    bad: list[object] = ["", "-x", "a b", "a\n", "x" * 300, "$(id)", "../x", 7, None]
    assert [is_session(text) for text in [*good, *bad]] == [True] * len(good) + [False] * len(bad)


def test_later_totals_replace_earlier_ones() -> None:
    first, last = Usage(session="s", tokens=5), Usage(tokens=9, usd=1.0)
    assert first.updated(last) == Usage(session="s", tokens=9, usd=1.0)
