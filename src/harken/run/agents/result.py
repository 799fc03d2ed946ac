"""What an agent hands in: `.harken/result.json`, and the JSON that coding-agent CLIs print about session and cost.

All of it is written by a program that has read a stranger's text. Nothing in it is believed beyond its form."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from harken.errors import NeedsAttention
from harken.run.agents.ticket_files import read_file, visible

__all__ = ["RESULT", "AgentResult", "Usage", "is_session", "read_result", "usage_of"]

RESULT = ".harken/result.json"
LARGEST = 1_000_000
LONGEST_SUMMARY, LONGEST_QUESTION, MOST_QUESTIONS, LONGEST_URL = 4_000, 1_000, 10, 500
MOST_TOKENS, MOST_USD = 10**10, 100_000.0
_SESSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,199}")
_SESSION_KEYS = ("session_id", "sessionId", "thread_id", "conversation_id")
_USD_KEYS = ("total_cost_usd", "cost_usd", "usd")
# what was read from a cache costs a tenth, and is many times as much: it would make a limit of tokens meaningless
_TOKEN_KEYS = ("input_tokens", "output_tokens", "cache_creation_input_tokens")


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is what the agent says of itself. With questions, a person has to answer before it goes on."""

    status: Literal["done", "failed", "waiting"] = "done"
    summary: str = ""
    pr_url: str = ""
    questions: tuple[str, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a CLI said about its session and cost; zero and empty where it said nothing."""

    session: str = ""
    tokens: int = 0
    usd: float = 0.0

    def updated(self, newer: Usage) -> Usage:
        """The newer values where there are any: CLIs repeat their totals, and the last ones count."""
        return Usage(
            session=newer.session or self.session, tokens=newer.tokens or self.tokens, usd=newer.usd or self.usd
        )


def read_result(tree: Path, path: str = RESULT) -> tuple[AgentResult, list[str]]:
    """Read the result file, with warnings about what was left out. Raise NeedsAttention if it is not valid.

    Without a file the exit code alone counts."""
    content = read_file(tree, path, LARGEST)
    if content is None:
        return AgentResult(), []
    try:
        given = msgspec.json.decode(content, type=AgentResult)
    except (msgspec.MsgspecError, RecursionError):
        fix = 'Write {"status": "done|failed|waiting", "summary": "…", "pr_url": "…", "questions": ["…"]}'
        raise NeedsAttention(f"{path} of the agent is not valid", fix=fix) from None
    warnings = []
    questions = tuple(text for question in given.questions if (text := _clean(question, LONGEST_QUESTION)))
    if len(questions) > MOST_QUESTIONS:
        warnings.append(f"only {MOST_QUESTIONS} of {len(questions)} questions are asked")
    url = given.pr_url if _is_web_address(given.pr_url) else ""
    if given.pr_url and not url:
        warnings.append("pr_url is not a web address, and was left out")
    summary = _clean(given.summary, LONGEST_SUMMARY)
    found = AgentResult(status=given.status, summary=summary, pr_url=url, questions=questions[:MOST_QUESTIONS])
    return found, warnings


def _clean(text: str, most: int) -> str:
    shown = visible(text).strip()
    return shown if len(shown) <= most else f"{shown[:most]}…"


def _is_web_address(text: str) -> bool:
    if len(text) > LONGEST_URL or not text.isascii() or any(char.isspace() or char in "<>\"'\\`" for char in text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def is_session(text: object) -> bool:
    """Whether the text can be handed to a command as a session: one word that is not an option."""
    return isinstance(text, str) and _SESSION.fullmatch(text) is not None


def usage_of(line: bytes) -> Usage | None:
    """What one line of output says about session and cost; None if it is not an object of JSON."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None
    session = next((found[key] for key in _SESSION_KEYS if is_session(found.get(key))), "")
    usage = found.get("usage")
    return Usage(session=session, tokens=_tokens(usage) if isinstance(usage, Mapping) else 0, usd=_usd(found))


def _tokens(usage: Mapping[str, Any]) -> int:
    counts = [usage.get(key) for key in _TOKEN_KEYS]
    total = sum(count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count > 0)
    return min(total, MOST_TOKENS)


def _usd(found: Mapping[str, Any]) -> float:
    given = [found.get(key) for key in _USD_KEYS]
    amounts = [float(usd) for usd in given if isinstance(usd, int | float) and not isinstance(usd, bool)]
    return next((min(usd, MOST_USD) for usd in amounts if math.isfinite(usd) and usd > 0), 0.0)
