"""Feeds as they are in the wild: entities, relative links, broken XML, no dates, and web pages in their place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.event import Event
from harken.kit.syndication import entries_of
from harken.services.rss import NewsFeed, Query, plugin
from harken.source import Host
from harken.testing import START
from harken.testing.fakes import Answer, Listing
from tests.services.reading import events, page, read, subjects


def feed(host: Host, listing: Listing, path: str = "feed.xml") -> NewsFeed:
    return NewsFeed(Query(feed_url=f"{listing.url}/{path}"), host)


def rss(*items: str, base: str = "") -> bytes:
    entries = "".join(f"<item>{item}</item>" for item in items)
    return f"<?xml version='1.0'?><rss version='2.0'{base}><channel><title>T</title>{entries}</channel></rss>".encode()


def atom(*entries: str) -> bytes:
    body = "".join(f"<entry>{entry}</entry>" for entry in entries)
    return f"<feed xmlns='http://www.w3.org/2005/Atom'><title>T</title><id>f</id>{body}</feed>".encode()


async def read_body(host: Host, listing: Listing, body: bytes, cursor: Any = None) -> list[Event]:
    listing.answers = [Answer(body=body)]
    return events(await read(feed(host, listing), cursor))


class TestReading:
    async def test_an_entry_becomes_an_event(self, host: Host, listing: Listing):
        item = listing.add("news-1", title="Ships & <b>boats</b>", age=60)
        (event,) = events(await read(feed(host, listing)))
        assert (event.subject, event.type, event.occurred_at) == ("news-1", "rss.entry", item.created_at)
        assert event.data == {
            "id": "news-1",
            "title": "Ships & boats",
            "link": f"{listing.url}/news-1",
            "summary": "",
            "author": "",
            "published": "2026-01-05T08:59:00Z",
        }

    async def test_entries_come_oldest_first(self, host: Host, listing: Listing):
        listing.newest_first = True
        for number in range(5):
            listing.add(f"n{number}", age=100 - number)
        assert subjects(await read(feed(host, listing))) == ["n0", "n1", "n2", "n3", "n4"]

    async def test_undated_entries_are_turned_around(self, host: Host, listing: Listing):
        found = await read_body(host, listing, rss("<guid>new</guid>", "<guid>old</guid>"))
        assert [(event.subject, event.occurred_at) for event in found] == [("old", None), ("new", None)]

    async def test_a_future_date_is_kept(self, host: Host, listing: Listing):
        listing.add("soon", age=-86_400)
        (event,) = events(await read(feed(host, listing)))
        assert event.occurred_at == START + timedelta(days=1)

    async def test_a_burst_larger_than_max_per_tick_is_passed_on_whole(self, host: Host, listing: Listing):
        for number in range(50):
            listing.add(f"n{number}")
        assert len(events(await read(feed(host, listing)))) == 50

    async def test_json_feed_is_read(self, host: Host, listing: Listing):
        items = [{"id": 7, "url": "/x", "title": "a &amp; b", "content_html": "<p>Hi &amp; bye</p>"}]
        body = {"version": "https://jsonfeed.org/version/1.1", "title": "J", "items": items}
        (event,) = await read_body(host, listing, msgspec.json.encode(body))
        assert (event.subject, event.data["title"], event.data["summary"]) == ("7", "a &amp; b", "Hi & bye")

    async def test_a_large_feed_is_read(self, host: Host, listing: Listing):
        items = [f"<guid>{number}</guid><description>{'x' * 1000}</description>" for number in range(11_000)]
        assert len(await read_body(host, listing, rss(*items))) == 11_000

    async def test_an_empty_feed_is_no_failure(self, host: Host, listing: Listing):
        assert await read_body(host, listing, rss()) == []


class TestUnchanged:
    async def test_a_304_costs_nothing_and_keeps_the_cursor(self, host: Host, listing: Listing):
        listing.add("a")
        first = await page(feed(host, listing))
        second = await page(feed(host, listing), first.cursor)
        assert (second.unchanged, second.cursor, list(second.events)) == (True, first.cursor, [])
        assert listing.seen[1].status == 304

    async def test_a_server_that_ignores_both_headers_is_noticed_by_its_bytes(self, host: Host, listing: Listing):
        listing.etags = False
        listing.add("a")
        first = await page(feed(host, listing))
        assert (await page(feed(host, listing), first.cursor)).unchanged

    async def test_last_modified_is_sent_back(self, host: Host, listing: Listing):
        stamp = "Mon, 05 Jan 2026 08:00:00 GMT"
        listing.answers = [Answer(body=rss("<guid>1</guid>"), headers={"Last-Modified": stamp})]
        first = await page(feed(host, listing))
        await page(feed(host, listing), first.cursor)
        assert listing.seen[1].headers["if-modified-since"] == stamp

    async def test_a_new_address_does_not_use_the_old_validators(self, host: Host, listing: Listing):
        listing.add("a")
        first = await page(feed(host, listing))
        assert subjects([await page(feed(host, listing, "feed.xml?all=1"), first.cursor)]) == ["a"]
        assert "if-none-match" not in listing.seen[1].headers

    @pytest.mark.parametrize("cursor", [7, "x", {"of": 1}, []])
    async def test_a_cursor_of_another_kind_reads_everything(self, host: Host, listing: Listing, cursor: Any):
        listing.add("a")
        assert subjects([await page(feed(host, listing), cursor)]) == ["a"]


class TestTitles:
    @pytest.mark.parametrize(
        ("written", "shown"),
        [
            ("AT&amp;amp;T", "AT&T"),
            ("AT&amp;T", "AT&T"),
            ("<![CDATA[AT&amp;T & <i>co</i>]]>", "AT&T & co"),
            ("caf&#233; &#x1F600;", "café 😀"),
            ("5 &amp;lt; 6", "5 < 6"),
            ("a &lt; b", "a < b"),
            ("List&lt;T&gt; explained", "List<T> explained"),
            ("&lt;b&gt;bold&lt;/b&gt; move", "bold move"),
            ("  two\n   lines ", "two lines"),
        ],
    )
    async def test_a_title_of_rss_is_unescaped_once(self, host: Host, listing: Listing, written: str, shown: str):
        (event,) = await read_body(host, listing, rss(f"<guid>1</guid><title>{written}</title>"))
        assert event.data["title"] == shown

    @pytest.mark.parametrize(
        ("written", "shown"),
        [
            ("<title>Use &lt;b&gt; &amp;amp; so</title>", "Use <b> &amp; so"),
            ("<title type='html'>AT&amp;amp;T &lt;b&gt;x&lt;/b&gt;</title>", "AT&T x"),
            ("<title type='xhtml'><div xmlns='http://www.w3.org/1999/xhtml'>X <b>y</b></div></title>", "X y"),
        ],
    )
    async def test_a_title_of_atom_is_what_its_type_says(self, host: Host, listing: Listing, written: str, shown: str):
        (event,) = await read_body(host, listing, atom(f"<id>1</id>{written}"))
        assert event.data["title"] == shown

    async def test_summaries_are_text(self, host: Host, listing: Listing):
        markup = "&lt;p&gt;Hi &amp;amp; bye&lt;/p&gt;&lt;script&gt;alert(1)&lt;/script&gt;"
        (event,) = await read_body(host, listing, rss(f"<guid>1</guid><description>{markup}</description>"))
        assert event.data["summary"] == "Hi & bye"


class TestIdsAndLinks:
    URL = "https://ex.example/feeds/main.xml"

    @pytest.mark.parametrize(
        ("item", "name"),
        [
            ("<guid>g</guid><link>https://ex.example/1</link>", "g"),
            ("<link>https://ex.example/1</link>", "https://ex.example/1"),
            ("<link>1</link>", "https://ex.example/feeds/1"),
            ("<guid>  g  </guid>", "g"),
        ],
    )
    def test_the_id_is_the_guid_or_else_the_link(self, item: str, name: str):
        (entry,) = entries_of(rss(item), self.URL)
        assert entry.id == name

    def test_without_both_the_title_and_date_make_the_id(self):
        date = "<pubDate>Mon, 05 Jan 2026 08:00:00 GMT</pubDate>"
        one, same, other = entries_of(
            rss(f"<title>a</title>{date}", f"<title>a</title>{date}", "<title>a</title>"), self.URL
        )
        assert one.id == same.id != other.id

    def test_links_are_relative_to_the_address_of_the_feed(self):
        one, two = entries_of(rss("<link>a?x=1&amp;y=2</link>", "<link>/b</link>"), self.URL)
        assert (one.link, two.link) == ("https://ex.example/feeds/a?x=1&y=2", "https://ex.example/b")

    def test_xml_base_counts(self):
        body = rss("<link>a</link>", base=" xml:base='https://cdn.example/deep/'")
        nested = atom("<id>1</id><link href='one'/>").replace(b"<entry>", b"<entry xml:base='sub/'>")
        assert entries_of(body, self.URL)[0].link == "https://cdn.example/deep/a"
        assert entries_of(nested, self.URL)[0].link == "https://ex.example/feeds/sub/one"

    def test_a_date_that_is_none_is_no_date(self):
        (entry,) = entries_of(rss("<guid>1</guid><pubDate>yesterday-ish</pubDate>"), self.URL)
        assert entry.published is None


class TestBroken:
    ITEMS = (
        "<guid>1</guid><title>one &amp; two</title><link>/1</link>",
        "<guid>2</guid><title>three</title><pubDate>Mon, 05 Jan 2026 08:00:00 GMT</pubDate>",
        "<title>no id</title><link>/3</link>",
    )

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("one &amp; two", "one & two &eacute;"),
            ("three", "three <b>bold"),
            ("</channel></rss>", ""),
            ("three", "thr\x0bee"),
            ("<title>T</title>", "<title>T</titel>"),
        ],
    )
    async def test_broken_xml_yields_its_entries_under_the_ids_they_always_had(
        self, host: Host, listing: Listing, old: str, new: str
    ):
        sound = await read_body(host, listing, rss(*self.ITEMS))
        broken = await read_body(host, listing, rss(*self.ITEMS).replace(old.encode(), new.encode()))
        assert [event.subject for event in broken] == [event.subject for event in sound]
        assert len(broken) == 3

    async def test_named_entities_of_html_are_understood(self, host: Host, listing: Listing):
        (event,) = await read_body(host, listing, rss("<guid>1</guid><title>caf&eacute; &mdash; x</title>"))
        assert event.data["title"] == "café — x"

    async def test_an_entity_bomb_neither_explodes_nor_reads_files(self, host: Host, listing: Listing):
        declared = "<!ENTITY a 'ha'>" + "".join(
            f"<!ENTITY {chr(98 + n)} '{f'&{chr(97 + n)};' * 10}'>" for n in range(9)
        )
        declared += "<!ENTITY file SYSTEM 'file:///etc/passwd'>"
        body = rss("<guid>1</guid><title>&j;&file;</title>").replace(b"<rss", f"<!DOCTYPE r [{declared}]><rss".encode())
        (event,) = await read_body(host, listing, body)
        assert len(event.data["title"]) < 1000
        assert "root:" not in event.data["title"]

    @pytest.mark.parametrize(
        ("encoded", "charset"),
        [
            ("latin-1", "iso-8859-1"),
            ("utf-8", "iso-8859-1"),
            ("utf-8", "no-such"),
            ("utf-8", "us-ascii"),
            ("cp1251", "windows-1251"),
            ("utf-8-sig", "windows-1251"),
        ],
    )
    async def test_the_encoding_that_a_server_names_counts_unless_it_cannot_be(
        self, host: Host, listing: Listing, encoded: str, charset: str
    ):
        word = {"cp1251": "мир"}.get(encoded, "café")
        body = rss(f"<guid>1</guid><title>{word}</title>").decode().encode(encoded)
        listing.answers = [Answer(body=body, headers={"Content-Type": f'text/xml; charset="{charset}"'})]
        (event,) = events(await read(feed(host, listing)))
        assert event.data["title"] == word

    async def test_the_encoding_that_a_server_names_wins_over_the_declared_one(self, host: Host, listing: Listing):
        text = rss("<guid>1</guid><title>café</title>").decode()
        body = text.replace("version='1.0'", "version='1.0' encoding='iso-8859-1'", 1).encode()
        listing.answers = [Answer(body=body, headers={"Content-Type": "application/rss+xml; charset=UTF-8"})]
        (event,) = events(await read(feed(host, listing)))
        assert event.data["title"] == "café"

    @pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-16", "windows-1252"])
    async def test_other_encodings_are_understood(self, host: Host, listing: Listing, encoding: str):
        text = rss("<guid>1</guid><title>café</title>").decode()
        body = text.replace("version='1.0'", f"version='1.0' encoding='{encoding}'", 1).encode(encoding)
        (event,) = await read_body(host, listing, body)
        assert event.data["title"] == "café"


class TestDialects:
    """Well-formed, and yet not what the quick parser expects."""

    URL = "https://ex.example/feed"

    @pytest.mark.parametrize(
        "body",
        [
            b"<rss><item><guid>1</guid><title>t</title></item></rss>",
            b"<feed><entry><id>1</id><title>t</title></entry></feed>",
            b"<feed xmlns='http://www.w3.org/2005/Atom'><item><id>1</id><title>t</title></item></feed>",
            b"<rss version='2.0'><channel><item><id>1</id><title>t</title></item></channel></rss>",
        ],
    )
    def test_entries_are_found_where_people_put_them(self, body: bytes):
        (entry,) = entries_of(body, self.URL)
        assert (entry.id, entry.title) == ("1", "t")

    @pytest.mark.parametrize("body", [b"<rss version='2.0'/>", b"<feed xmlns='http://www.w3.org/2005/Atom'/>"])
    def test_a_feed_without_anything_is_an_empty_feed(self, body: bytes):
        assert entries_of(body, self.URL) == []

    def test_the_title_of_an_item_is_not_that_of_its_media(self):
        item = "<guid>1</guid><media:title>photo</media:title><title>news</title>"
        (entry,) = entries_of(rss(item, base=" xmlns:media='http://search.yahoo.com/mrss/'"), self.URL)
        assert entry.title == "news"

    def test_a_link_may_stand_in_href(self):
        (entry,) = entries_of(rss("<guid isPermaLink='false'>1</guid><link href='/x'/>"), self.URL)
        assert entry.link == "https://ex.example/x"

    def test_a_script_in_a_title_is_not_its_text(self):
        markup = "<div xmlns='http://www.w3.org/1999/xhtml'>safe<script>evil()</script> words</div>"
        (entry,) = entries_of(atom(f"<id>1</id><title type='xhtml'>{markup}</title>"), self.URL)
        assert entry.title == "safe words"

    async def test_a_feed_that_calls_itself_a_page_is_a_feed(self, host: Host, listing: Listing):
        body = b"<!DOCTYPE html><!-- <html> -->" + rss("<guid>1</guid>").partition(b"?>")[2]
        assert len(await read_body(host, listing, body)) == 1


def test_a_message_is_the_title_and_the_link():
    assert plugin.delivery is not None
    assert plugin.delivery(Query(feed_url="https://x.example"), "rss").template == "{title}\n{link}"


class TestNotAFeed:
    PAGE = b"""<!DOCTYPE html><html><head><link rel="stylesheet" href="/x.css">
        <link href='/blog/feed.xml?key=1' type='application/rss+xml' rel='alternate'></head></html>"""

    async def test_a_web_page_names_the_feed_it_has(self, host: Host, listing: Listing):
        with pytest.raises(NeedsAttention) as caught:
            await read_body(host, listing, self.PAGE)
        assert "answered with a web page" in caught.value.message
        assert caught.value.fix == f"Did you mean {listing.url}/blog/feed.xml?"

    @pytest.mark.parametrize("body", [b"", b"oops", b'{"error": 1}', b"{}", b"\x00\xff", b"<x/>", b'{"items": 3}'])
    async def test_anything_else_needs_a_person(self, host: Host, listing: Listing, body: bytes):
        with pytest.raises(NeedsAttention, match="not a feed"):
            await read_body(host, listing, body)

    async def test_a_page_where_a_feed_was_before_passes(self, host: Host, listing: Listing):
        listing.add("a")
        first = await page(feed(host, listing))
        with pytest.raises(RetryLater, match="where a feed was before"):
            await read_body(host, listing, self.PAGE, first.cursor)

    @pytest.mark.parametrize(("status", "error"), [(404, NeedsAttention), (503, RetryLater), (429, RetryLater)])
    async def test_a_status_is_sorted_as_everywhere(self, host: Host, listing: Listing, status: int, error: Any):
        listing.answers = [Answer(status=status)]
        with pytest.raises(error):
            await read(feed(host, listing))


@pytest.mark.parametrize("wrong", [{}, {"feed_url": "file:///etc/passwd"}, {"feed_url": "http://x.example", "x": 1}])
def test_a_wrong_query_is_refused(wrong: Any):
    with pytest.raises(ValidationError):
        Query.model_validate(wrong)


def test_dates_are_utc():
    (entry,) = entries_of(rss("<guid>1</guid><pubDate>Mon, 05 Jan 2026 08:00:00 -0500</pubDate>"), "https://x.example")
    assert entry.published == datetime(2026, 1, 5, 13, tzinfo=UTC)
