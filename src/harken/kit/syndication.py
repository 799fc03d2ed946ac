"""Entries of RSS, RDF, Atom and JSON Feed.

Well-formed documents are parsed with fastfeedparser. It drops entries and characters of broken ones, so those are
parsed with feedparser, which is much slower and accepts nearly everything. Both must give an entry the same id, or a
feed that is broken for one day would show all of its entries as new.
"""

from __future__ import annotations

import codecs
import hashlib
import html
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from io import BytesIO
from typing import Any
from urllib.parse import urljoin

import msgspec

from harken.kit.html import html_to_line
from harken.kit.values_from_payload import instant

__all__ = ["Entry", "NotAFeed", "entries_of", "feed_link", "is_page", "oldest_first"]

# bytes; beyond this size feedparser would block the event loop for too long
_SLOW_PARSER_CAP = 4_000_000
_LONGEST_SUMMARY = 10_000
_INLINE = re.compile(
    r"</?(?:a|abbr|b|bdi|big|br|cite|code|del|div|em|font|i|img|ins|kbd|mark|p|q|s|small|span|strike|strong|sub|sup|tt|u|wbr)"
    r"(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
_SEEN_TEXT = ".//text()[not(ancestor::*[local-name()='script' or local-name()='style'])]"
_DECLARED = re.compile(r"""(<\?xml\b[^<>]*?)\s+encoding\s*=\s*["']([\w.:-]+)["']""")
_SPACE = re.compile(r"\s+")
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_ELEMENT = re.compile(rb"<[A-Za-z][\w:.-]*")
_PAGE = re.compile(rb"<(?:!doctype\s+html|html)\b", re.IGNORECASE)
_FEED = re.compile(rb"<(?:\w+:)?(?:rss|feed|rdf)\b", re.IGNORECASE)
_LINK = re.compile(r"<link\b[^>]*>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
# by preference: pubDate is RSS, date is Dublin Core, the others are Atom
_DATES = ("pubdate", "published", "date", "issued", "updated", "modified")
_FEED_TYPES = ("application/rss+xml", "application/atom+xml", "application/feed+json", "application/rdf+xml")


class NotAFeed(ValueError):
    """No parser recognises the document as a feed."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str = ""
    link: str = ""
    summary: str = ""
    author: str = ""
    published: datetime | None = None


def entries_of(body: bytes, url: str, charset: str = "") -> list[Entry]:
    """Return every entry, in the order of the document. Raise NotAFeed.

    `url` is the base of relative links, `charset` the encoding that the server names.
    """
    body = _as_utf8(body, charset)
    if body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        return _parse_json_feed(body, url)
    tree = _parse_tree(body)
    if tree is not None:
        return _parse_well_formed(body, url, tree)
    try:
        recovered = _parse_fast(body, url, _parse_tree(body, recover=True))
    except NotAFeed:
        recovered = []
    lenient = _parse_lenient(body, url) if len(body) <= _SLOW_PARSER_CAP or not recovered else []
    return lenient if len(lenient) >= len(recovered) else recovered


def is_page(body: bytes) -> bool:
    """Whether this is a web page, and not a broken feed or a feed with the doctype of a page."""
    head = _COMMENT.sub(b"", body[:4096])
    first = _ELEMENT.search(head)
    return _PAGE.search(head[: first.end() if first else None]) is not None and not (first and _FEED.match(first[0]))


def feed_link(page: str, url: str) -> str:
    """Return the URL of the feed that a web page links to; empty if there is none."""
    for tag in _LINK.findall(page[:200_000]):
        given = {name.lower(): html.unescape(a or b or c) for name, a, b, c in _ATTRIBUTE.findall(tag)}
        kind = given.get("type", "").lower()
        if "alternate" in given.get("rel", "").lower().split() and kind in _FEED_TYPES and given.get("href"):
            return urljoin(url, given["href"])
    return ""


def _parse_tree(body: bytes, *, recover: bool = False) -> Any:
    """Parse the document; None if it is not well-formed, or declares entities, which are not resolved."""
    from lxml import etree  # type: ignore[import-untyped]

    if b"<!ENTITY" in body[:4096] and not recover:
        return None
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True, recover=recover)
    try:
        return etree.fromstring(body, parser)
    except (etree.XMLSyntaxError, ValueError):
        return None


def _as_utf8(body: bytes, charset: str) -> bytes:
    """Re-encode the document if the server names another encoding, which takes precedence (RFC 7303) if it fits."""
    declared = _DECLARED.search(body[:200].decode("ascii", "replace"))
    own = declared[2].lower() if declared else "utf-8"
    if not charset or charset.lower() == own or body.startswith(_BOMS):
        return body
    text = _decode(body, charset)
    # many servers always say Latin-1; a document that decodes as UTF-8 is UTF-8
    if text is None or (own == "utf-8" and _decode(body, own) is not None):
        return body
    return _DECLARED.sub(r"\1", text, count=1).encode()


def _decode(body: bytes, charset: str) -> str | None:
    try:
        return body.decode(charset)
    except (LookupError, UnicodeError):
        return None


def _parse_well_formed(body: bytes, url: str, tree: Any) -> list[Entry]:
    """Parse a well-formed document; with feedparser if fastfeedparser does not know the dialect."""
    try:
        return _parse_fast(body, url, tree)
    except NotAFeed:
        if len(body) > _SLOW_PARSER_CAP:
            raise
    return _parse_lenient(body, url)


def _parse_fast(body: bytes, url: str, tree: Any) -> list[Entry]:
    import fastfeedparser

    if tree is None:
        raise NotAFeed
    try:
        found = fastfeedparser.parse(body, include_tags=False, include_media=False, include_enclosures=False).entries
    except ValueError:
        raise NotAFeed from None
    listed = list(tree.iter("{*}entry", "{*}item"))
    if listed and not found:
        raise NotAFeed
    elements = [element for element in listed if _is_entry(element)]
    if len(elements) != len(found):
        elements = [None] * len(found)
    return [_fast_entry(entry, element, url) for entry, element in zip(found, elements, strict=True)]


def _fast_entry(found: Mapping[str, Any], element: Any, url: str) -> Entry:
    """Return the parser's entry; what it ignores (xml:base, the type of a title) or guesses (dates) is read here."""
    # where the id is missing, the parser fills in the link
    given = {**found, "id": None} if found.get("id") == found.get("link") else dict(found)
    if element is None:
        return _entry({**given, "published": None}, url)
    written = {_local(child): child.text for child in element}
    given["published"] = next((written[name] for name in _DATES if written.get(name)), None)
    atom = _local(element) == "entry"
    if not atom:
        given.update(_rss_names(element, given))
    title = _atom_title(element) if atom else None
    return _entry(given, urljoin(url, element.base or ""), title=title)


def _parse_lenient(body: bytes, url: str) -> list[Entry]:
    import feedparser

    # a stream, because feedparser takes bytes and text for a file name first
    parsed = feedparser.parse(BytesIO(body), sanitize_html=False, resolve_relative_uris=False)
    if not parsed.entries and not parsed.get("version"):
        raise NotAFeed
    return [_lenient_entry(entry, url) for entry in parsed.entries]


def _lenient_entry(found: Any, url: str) -> Entry:
    # feedparser fills in the guid for a missing link, but not in `links`
    link = found.get("link") if found.get("links") else None
    name = found.get("id") if found.get("id") != link else None
    date = dict.get(found, "published") or dict.get(found, "updated")
    base = str((found.get("title_detail") or {}).get("base") or "")
    named = {"id": name, "link": link, "published": date, "description": found.get("summary")}
    return _entry({**{key: found.get(key) for key in ("title", "author", "content")}, **named}, urljoin(url, base))


def _parse_json_feed(body: bytes, url: str) -> list[Entry]:
    try:
        items = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))["items"]
        return [_json_entry(item, url) for item in items]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError, AttributeError):
        raise NotAFeed from None


def _json_entry(item: Mapping[str, Any], url: str) -> Entry:
    text = item.get("summary") or item.get("content_text") or html_to_line(_text(item.get("content_html")))
    authors = item.get("authors") or [item.get("author") or {}]
    title = _SPACE.sub(" ", _text(item.get("title"))).strip()
    date = item.get("date_published") or item.get("date_modified")
    named = {"id": item.get("id"), "link": item.get("url") or item.get("external_url"), "published": date}
    return _entry({**named, "title": title, "author": authors[0].get("name")}, url, title=title, summary=_text(text))


def _is_entry(element: Any) -> bool:
    parent = element.getparent()
    return parent is not None and _local(parent) in ("feed", "channel", "rss", "rdf")


def _local(element: Any) -> str:
    return str(element.tag).rpartition("}")[2].lower()


def _rss_names(element: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the item's own names: not the title of its media; some feeds write id for guid, or a link with href."""
    space = element.tag.rpartition("}")[0]
    own = {_local(child): child for child in reversed(element) if str(child.tag).rpartition("}")[0] == space}
    title, name, link = own.get("title"), own.get("id"), own.get("link")
    return {
        "title": "".join(title.itertext()) if title is not None else found.get("title"),
        "id": found.get("id") or (name.text if name is not None else None),
        "link": found.get("link") or (link.get("href") if link is not None else None),
    }


def _atom_title(element: Any) -> str:
    title = element.find("{*}title")
    if title is None:
        return ""
    text = "".join(title.xpath(_SEEN_TEXT))
    return html_to_line(text) if title.get("type") in ("html", "text/html") else _SPACE.sub(" ", text).strip()


def _entry(found: Mapping[str, Any], base: str, *, title: str | None = None, summary: str | None = None) -> Entry:
    link, name, date = (
        _join_url(base, _text(found.get("link"))),
        _text(found.get("title")),
        _text(found.get("published")),
    )
    if summary is None:
        summary = html_to_line(_text(found.get("description")) or _content(found))
    return Entry(
        id=_text(found.get("id")) or link or _digest(name, date),
        title=_title(name) if title is None else title,
        link=link,
        summary=summary[:_LONGEST_SUMMARY],
        author=html_to_line(_text(found.get("author"))),
        published=instant(date),
    )


def _title(text: str) -> str:
    """Return a title of RSS, which may be markup or not: known tags are removed, entities resolved once."""
    return _SPACE.sub(" ", html.unescape(_INLINE.sub("", text))).strip()


def _content(found: Mapping[str, Any]) -> str:
    parts = found.get("content") or ()
    return "".join(_text(part.get("value")) for part in parts[:1])


def _join_url(base: str, link: str) -> str:
    try:
        return urljoin(base, link) if link else ""
    except ValueError:
        return link


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _digest(*parts: str) -> str:
    return "sha256:" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def oldest_first(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries oldest first: by date where every entry has one, else in reverse order of the feed."""
    ordered = list(entries)[::-1]
    if all(entry.published for entry in ordered):
        ordered.sort(key=lambda entry: entry.published or datetime.min.replace(tzinfo=UTC))
    return ordered
