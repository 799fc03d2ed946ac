"""From an answer to the text that people read on it: a line for each block, without scripts, styles and indentation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from harken.errors import NeedsAttention
from harken.http import Reply
from harken.language.paths import MISSING, lookup
from harken.services.page.nesting import too_deep

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

__all__ = ["Part", "Seen", "check_selector", "look"]

INSTALL = "pip install 'harken[page]'"
_LONGEST_TITLE = 300
_SPACE = re.compile(r"\s+")
_BLANK = re.compile(r"[^\S\n]+")
_UNSEEN = frozenset({"head", "script", "style", "noscript", "template", "svg", "iframe", "object"})
_CELLS = frozenset({"td", "th"})
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|br|button|caption|d[dlt]|details|dialog|div|fieldset|figcaption|figure|footer"
    "|form|h[1-6]|header|hr|html|legend|li|main|nav|ol|optgroup|option|p|pre|section|select|summary|table|t(?:body|foot"
    "|head|r)|ul"
)
_MARKUP = ("html", "xml")
_PLAIN = ("text/", "json", "yaml", "csv", "javascript", "markdown")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What counts on a page: what a selector finds (or an attribute of it), a value of JSON, or else all of it."""

    selector: str = ""
    json_path: str = ""
    attribute: str = ""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The text, and None when the part is not there: that is something else than an empty one."""

    text: str | None
    title: str = ""


def check_selector(selector: str) -> None:
    """Raise ValueError for what is no selector; without the parser, nothing is known until the first read."""
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


def look(reply: Reply, part: Part) -> Seen:
    """What there is to read. NeedsAttention when it is a picture or the like, RetryLater when it should be JSON."""
    if part.json_path:
        return Seen(text=_json_text(lookup(reply.json(), part.json_path)))
    kind = reply.headers.get("Content-Type", "text/html").partition(";")[0].strip().lower()
    markup = any(word in kind for word in _MARKUP)
    if not part.selector and not markup:
        return Seen(text=_tidy(_plain(reply, kind)) or None)
    tree = _parse(reply.text())
    title = tree.css_first("title")
    named = _SPACE.sub(" ", title.text()).strip()[:_LONGEST_TITLE] if title is not None else ""
    return Seen(text=_found(tree, part) if part.selector else _tidy(_text(tree.root)) or None, title=named)


def _plain(reply: Reply, kind: str) -> str:
    if not any(word in kind for word in _PLAIN):
        raise NeedsAttention(f"the answer is {kind[:60]}, which has no text to compare", fix="Correct url")
    return reply.text()


def _json_text(value: Any) -> str | None:
    if value is MISSING:
        return None
    text = _tidy(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    # half a character cannot be stored
    return text.encode("utf-8", "replace").decode()


def _parse(markup: str) -> LexborHTMLParser:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise NeedsAttention("reading pages needs a parser that is not installed", fix=INSTALL) from None
    if too_deep(markup):
        raise NeedsAttention("the page nests its elements deeper than any that is meant to be read", fix="Correct url")
    return LexborHTMLParser(markup)


def _found(tree: LexborHTMLParser, part: Part) -> str | None:
    nodes = tree.css(part.selector)
    if not part.attribute:
        return "\n".join(filter(None, map(_tidy, map(_text, nodes)))) if nodes else None
    values = [node.attributes[part.attribute] or "" for node in nodes if part.attribute in node.attributes]
    return "\n".join(_SPACE.sub(" ", value).strip() for value in values) if values else None


def _text(node: LexborNode | None) -> str:
    return "".join(_pieces(node)) if node is not None else ""


def _pieces(root: LexborNode) -> Iterator[str]:
    """The texts in reading order, with line ends around blocks. A stack of its own: pages nest as deep as they like."""
    waiting: list[tuple[LexborNode | str, bool]] = [(root, False)]
    while waiting:
        node, as_written = waiting.pop()
        if isinstance(node, str):
            yield node
        elif node.is_text_node:
            text = node.text_content or ""
            yield text if as_written else _SPACE.sub(" ", text)
        elif node.is_element_node and (node is root or node.tag not in _UNSEEN):
            edge = "\n" if _BLOCK.fullmatch(node.tag or "") else " " if node.tag in _CELLS else ""
            as_written = as_written or node.tag in ("pre", "textarea")
            children: list[LexborNode] = list(node.iter(include_text=True))
            waiting.append((edge, False))
            waiting.extend((child, as_written) for child in reversed(children))
            waiting.append((edge, False))


def _tidy(text: str) -> str:
    """Without empty lines, and without the spaces that nobody sees."""
    lines = (_BLANK.sub(" ", line).strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)
