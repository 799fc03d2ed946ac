"""The visible text of a page: a line for each block, without scripts, styles, indentation and ignored parts."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harken.errors import NeedsAttention, RetryLater
from harken.extras import how_to_install
from harken.http import Reply
from harken.kit.safe_text import tidy_lines
from harken.language.dotted_paths import MISSING, lookup

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

__all__ = ["PageText", "Part", "check_selector", "extract_text", "remove_matches"]

INSTALL = how_to_install("page")
_LONGEST_TITLE = 300
_SPACE = re.compile(r"\s+")
_INVISIBLE = frozenset({"head", "script", "style", "noscript", "template", "svg", "iframe", "object"})
_CELLS = frozenset({"td", "th"})
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|br|button|caption|d[dlt]|details|dialog|div|fieldset|figcaption|figure|footer"
    "|form|h[1-6]|header|hr|html|legend|li|main|nav|ol|optgroup|option|p|pre|section|select|summary|table|t(?:body|foot"
    "|head|r)|ul"
)
_MARKUP = ("html", "xml")
_PLAIN = ("text/", "json", "yaml", "csv", "javascript", "markdown")

# the parser looks through all open elements for each new one: 100,000 of them take minutes. Real pages have dozens
MOST_OPEN = 1_000
_SCRIPT = re.compile(r"<(script|style)\b.*?(?:</\1|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)([^<>]*)")
# elements without an end tag, or whose end tag is optional
_NEVER_NESTED = re.compile(
    "area|base|body|br|caption|col|colgroup|dd|dt|embed|head|hr|html|img|input|li|link|meta|option|p|source"
    "|t[dhr]|tbody|tfoot|thead|track|wbr"
)
# these elements end an svg or math element (HTML, "rules for parsing tokens in foreign content")
_ENDS_DRAWING = re.compile(
    "b|big|blockquote|center|code|div|dl|em|font|h[1-6]|i|listing|menu|nobr|ol|pre|ruby|s|small|span|strong|strike|sub"
    "|sup|table|tt|u|ul|var"
)

IGNORE_SECONDS = 3.0
# a process of its own, because a regular expression can run forever; the CPU limit ends it if we are killed
_PROGRAM = """
import json, re, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
except ImportError:
    pass
patterns, text = json.load(sys.stdin)
for pattern in patterns:
    text = re.sub(pattern, "", text, flags=re.MULTILINE)
json.dump(text, sys.stdout)
"""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a page that counts: what a selector finds (or an attribute of it), a JSON value, or all text."""

    selector: str = ""
    json_path: str = ""
    attribute: str = ""


class PageText(msgspec.Struct, frozen=True, kw_only=True):
    """The text of the part; None if the part is missing, which is not the same as empty."""

    text: str | None
    title: str = ""


def check_selector(selector: str) -> None:
    """ValueError if it is not a selector. Not checked if the parser is not installed."""
    if not selector:
        return
    try:
        from selectolax.lexbor import LexborHTMLParser, SelectolaxError
    except ImportError:
        return
    try:
        LexborHTMLParser("").css(selector)
    except SelectolaxError:
        raise ValueError(f"{selector!r} is not a CSS selector that is understood") from None


def extract_text(reply: Reply, part: Part) -> PageText:
    """Extract the text. NeedsAttention if the reply is not text, RetryLater if it is not the expected JSON."""
    if part.json_path:
        return PageText(text=_json_text(lookup(reply.json(), part.json_path)))
    kind = reply.headers.get("Content-Type", "text/html").partition(";")[0].strip().lower()
    markup = any(word in kind for word in _MARKUP)
    if not part.selector and not markup:
        return PageText(text=tidy_lines(_plain(reply, kind)) or None)
    tree = _parse(reply.text())
    title = tree.css_first("title")
    named = _SPACE.sub(" ", title.text()).strip()[:_LONGEST_TITLE] if title is not None else ""
    return PageText(
        text=_selected_text(tree, part) if part.selector else tidy_lines(_text(tree.root)) or None, title=named
    )


async def remove_matches(text: str, patterns: Sequence[str]) -> str:
    """The text without what the patterns match, and without the lines that this leaves empty."""
    if not patterns or not text:
        return text
    given = msgspec.json.encode([patterns, text])
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM)
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    try:
        async with asyncio.timeout(IGNORE_SECONDS):
            output, _ = await process.communicate(given)
    except TimeoutError:
        message = f"the expressions of `ignore` took more than {IGNORE_SECONDS:.0f} s"
        raise RetryLater(message, reason="timeout", fix="Write them without nested repetitions such as (a+)+") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RetryLater(f"the process that applies `ignore` ended with {process.returncode}")
    lines = (line.strip() for line in msgspec.json.decode(output, type=str).split("\n"))
    return "\n".join(line for line in lines if line)


def _plain(reply: Reply, kind: str) -> str:
    if not any(word in kind for word in _PLAIN):
        raise NeedsAttention(f"the answer is {kind[:60]}, which has no text to compare", fix="Correct url")
    return reply.text()


def _json_text(value: Any) -> str | None:
    if value is MISSING:
        return None
    text = (
        tidy_lines(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    )
    # lone surrogates cannot be stored
    return text.encode("utf-8", "replace").decode()


def _parse(markup: str) -> LexborHTMLParser:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise NeedsAttention("the parser for web pages is not installed", fix=INSTALL) from None
    if is_too_deep(markup):
        raise NeedsAttention("the page nests its elements deeper than any that is meant to be read", fix="Correct url")
    return LexborHTMLParser(markup)


def _selected_text(tree: LexborHTMLParser, part: Part) -> str | None:
    nodes = tree.css(part.selector)
    if not part.attribute:
        return "\n".join(filter(None, map(tidy_lines, map(_text, nodes)))) if nodes else None
    values = [node.attributes[part.attribute] or "" for node in nodes if part.attribute in node.attributes]
    return "\n".join(_SPACE.sub(" ", value).strip() for value in values) if values else None


def _text(node: LexborNode | None) -> str:
    return "".join(_pieces(node)) if node is not None else ""


def _pieces(root: LexborNode) -> Iterator[str]:
    """The texts in reading order, with line ends around blocks. Not recursive, because pages may nest deeply."""
    waiting: list[tuple[LexborNode | str, bool]] = [(root, False)]
    while waiting:
        node, as_written = waiting.pop()
        if isinstance(node, str):
            yield node
        elif node.is_text_node:
            text = node.text_content or ""
            yield text if as_written else _SPACE.sub(" ", text)
        elif node.is_element_node and (node is root or node.tag not in _INVISIBLE):
            edge = "\n" if _BLOCK.fullmatch(node.tag or "") else " " if node.tag in _CELLS else ""
            as_written = as_written or node.tag in ("pre", "textarea")
            children: list[LexborNode] = list(node.iter(include_text=True))
            waiting.append((edge, False))
            waiting.extend((child, as_written) for child in reversed(children))
            waiting.append((edge, False))


def is_too_deep(markup: str) -> bool:
    """Whether more elements are open at once than any real page has. An estimate that rather counts too many."""
    depth, drawing = 0, False
    for found in _TAG.finditer(_SCRIPT.sub("", markup)):
        closes, name = bool(found[1]), found[2].lower()
        if _NEVER_NESTED.fullmatch(name):
            continue
        drawing = (drawing and not _ENDS_DRAWING.fullmatch(name)) or (name in ("svg", "math"))
        if closes:
            depth = max(0, depth - 1)
            drawing = drawing and name not in ("svg", "math")
        elif not (drawing and found[3].endswith("/")):
            depth += 1
            if depth > MOST_OPEN:
                return True
    return False
