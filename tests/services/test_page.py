"""A page is watched: what counts as a change, what does not, and what is a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from harken.errors import NeedsAttention, Refused, RetryLater
from harken.services.page import KEPT, LARGEST, Page, Query, plugin
from harken.source import Host, PollSource
from harken.testing import START, HandClock, VirtualClock, virtual
from harken.testing.fakes import Answer
from harken.testing.source import Service, SourceContract
from tests.services.reading import events, page
from tests.services.site import Site, change, watch
from tests.services.whole import running


@pytest.fixture
async def site(clock: HandClock) -> AsyncIterator[Site]:
    served = Site(clock)
    async with served.serve():
        yield served


def shop(price: str, clock: str = "10:00") -> str:
    return f"<title>Shop &amp; co</title><h1>Boots</h1><p class=price>{price}</p><p>Stock: 3</p><i>at {clock}</i>"


class OnSite:
    """Each put is a new text; the page is one subject, of which only the last text can be seen."""

    page_size = 1
    since = START - timedelta(seconds=1)

    def __init__(self, site: Site, source: PollSource) -> None:
        self.source = source
        self._site = site
        self._count = 0

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        self._count += count
        self._site.write(f"<p>text {self._count}</p>")
        return [f"{self._site.url}/page"]

    async def expire(self) -> bool:
        return False


class TestContract(SourceContract):
    @pytest.fixture(params=[False, True])
    def service(self, request: Any, site: Site, host: Host) -> Service:
        site.etags = request.param
        return OnSite(site, watch(site, host))


class TestChanges:
    async def test_a_change_tells_what_was_and_what_is(self, site: Site, host: Host):
        first, second = await change(site, watch(site, host), shop("50 CHF"), shop("45 CHF"))
        (event,) = second.events
        assert event.type == "page.changed"
        assert event.data == {
            "url": f"{site.url}/page",
            "title": "Shop & co",
            "old": "Boots\n50 CHF\nStock: 3\nat 10:00",
            "new": "Boots\n45 CHF\nStock: 3\nat 10:00",
            "diff": "@@ -1 +1 @@\n Boots\n-50 CHF\n+45 CHF\n Stock: 3\n at 10:00",
            "added": "45 CHF",
            "removed": "50 CHF",
            "changed_at": "2026-01-05T09:00:00Z",
        }
        assert (first.events[0].data["old"], first.events[0].data["removed"]) == (None, "")

    async def test_a_change_that_is_taken_back_is_another_change(self, site: Site, host: Host):
        batches = await change(site, watch(site, host), "<p>A</p>", "<p>B</p>", "<p>A</p>")
        states = [event.state for event in events(batches)]
        assert (len(states), states[0]) == (3, states[2])
        assert states[0] != states[1]

    async def test_markup_alone_is_no_change(self, site: Site, host: Host):
        _, second = await change(
            site, watch(site, host), "<p>A b</p>", "<div id=x>\n A <b>b</b><script>1</script></div>"
        )
        assert (list(second.events), second.unchanged) == ([], True)

    async def test_only_what_is_selected_counts(self, site: Site, host: Host):
        source = watch(site, host, selector="p.price")
        _, second, third = await change(site, source, shop("50"), shop("50", "10:01"), shop("45", "10:02"))
        assert second.unchanged
        assert [(event.data["old"], event.data["new"]) for event in third.events] == [("50", "45")]

    async def test_what_is_ignored_does_not_count_and_is_not_shown(self, site: Site, host: Host):
        source = watch(site, host, ignore=[r"at \d+:\d+", "^Stock.*$"])
        _, second, third = await change(site, source, shop("50"), shop("50", "10:01"), shop("45", "10:02"))
        assert second.unchanged
        assert third.events[0].data["new"] == "Boots\n45"

    async def test_a_value_of_json_counts_whatever_its_keys_order(self, site: Site, host: Host):
        site.kind = "application/json"
        source = watch(site, host, json_path="a.0")
        texts = ('{"a": [{"x": 1, "y": [2]}], "t": 1}', '{"t": 2, "a": [{"y": [2], "x": 1}]}', '{"a": [{"x": 3}]}')
        _, second, third = await change(site, source, *texts)
        assert second.unchanged
        assert third.events[0].data["new"] == '{\n  "x": 3\n}'

    async def test_an_edited_query_starts_over_in_silence(self, site: Site, host: Host):
        (first,) = await change(site, watch(site, host), shop("50"))
        edited = watch(site, host, selector="p.price")
        second = await page(edited, first.cursor)
        site.write(shop("45"))
        third = await page(edited, second.cursor)
        assert list(second.events) == []
        assert [event.data["old"] for event in third.events] == ["50"]

    async def test_a_304_costs_nothing_and_keeps_the_cursor(self, site: Site, host: Host):
        site.etags = True
        first = await page(watch(site, host))
        second = await page(watch(site, host), first.cursor)
        assert (second.unchanged, second.cursor, site.seen[1].status) == (True, first.cursor, 304)

    async def test_a_change_far_down_in_a_long_page_is_noticed(self, site: Site, host: Host):
        long = "<p>" + "word " * KEPT + "</p>"
        _, second = await change(site, watch(site, host), f"{long}<p>A</p>", f"{long}<p>B</p>")
        assert "further down" in second.events[0].data["diff"]
        assert len(second.cursor["text"]) == KEPT
        assert len(second.events[0].payload()) < 50_000

    async def test_a_long_difference_is_cut_visibly(self, site: Site, host: Host):
        texts = ["".join(f"<p>{word} {number}</p>" for number in range(5000)) for word in ("old", "new")]
        _, second = await change(site, watch(site, host), *texts)
        assert "more characters]" in second.events[0].data["diff"]
        assert second.events[0].data["diff"].startswith("@@ -1 +1 @@\n-old 0\n")


class TestMissing:
    async def test_a_selector_that_never_found_anything_needs_a_person(self, site: Site, host: Host):
        with pytest.raises(NeedsAttention, match=r"nothing on the page of .* is at the selector") as caught:
            await page(watch(site, host, selector="#gone"))
        assert caught.value.fix.startswith("Correct selector")

    async def test_a_part_that_is_lost_is_a_failure_and_no_change(self, site: Site, host: Host):
        source = watch(site, host, selector="p.price")
        first = await page_of(site, source, shop("50"))
        with pytest.raises(RetryLater, match="where something was before"):
            await page_of(site, source, "<h1>Down for maintenance</h1>", first.cursor)
        back = await page_of(site, source, shop("45"), first.cursor)
        assert back.events[0].data["diff"] == "@@ -1 +1 @@\n-50\n+45"

    @pytest.mark.parametrize(
        ("body", "fields"),
        [(b'{"a": {}}', {"json_path": "a.b"}), (b"<p>x</p>", {"selector": "p", "attribute": "href"})],
    )
    async def test_a_path_or_an_attribute_may_be_missing_too(self, site: Site, host: Host, body: bytes, fields: Any):
        site.body = body
        with pytest.raises(NeedsAttention):
            await page(watch(site, host, **fields))

    async def test_absence_is_news_where_that_is_asked_for(self, site: Site, host: Host):
        source = watch(site, host, selector=".sold-out", missing="empty")
        _, second = await change(site, source, "<b class=sold-out>Sold out</b>", "<p>Buy now</p>")
        assert (second.events[0].data["new"], second.events[0].data["removed"]) == ("", "Sold out")

    async def test_a_page_without_a_word_is_taken_for_one_that_scripts_build(self, site: Site, host: Host):
        site.write("<div id=app></div><script>render()</script>")
        with pytest.raises(NeedsAttention, match="what scripts build in a browser is not seen"):
            await page(watch(site, host))


async def page_of(site: Site, source: Page, text: str, cursor: Any = None) -> Any:
    site.write(text)
    return await page(source, cursor)


class Flood(Site):
    """A page that never ends: with the length of 2 GB, or without one."""

    sent = 0
    length: int | None = None

    async def _page(self, request: web.Request) -> Any:
        reply = web.StreamResponse(headers={"Content-Type": "text/html"})
        reply.content_length = self.length
        await reply.prepare(request)
        while request.transport is not None and not request.transport.is_closing():
            await reply.write(b"x" * 100_000)
            self.sent += 100_000
        return reply


class TestTrouble:
    @pytest.mark.parametrize("length", [None, 2_000_000_000])
    async def test_two_gigabytes_are_cut_off(self, clock: HandClock, host: Host, length: int | None):
        flood = Flood(clock)
        flood.length = length
        async with flood.serve():
            with pytest.raises(RetryLater, match="sent more than 8,000,000 bytes"):
                await page(watch(flood, host))
        assert flood.sent < 4 * LARGEST

    @pytest.mark.parametrize(("status", "error"), [(401, NeedsAttention), (404, NeedsAttention), (503, RetryLater)])
    async def test_a_status_is_sorted_as_everywhere(self, site: Site, host: Host, status: int, error: Any):
        site.answers = [Answer(status=status, body=b"<p>Sorry</p>")]
        with pytest.raises(error):
            await page(watch(site, host))

    async def test_a_redirect_to_the_metadata_service_is_refused(self, site: Site, host: Host):
        site.answers = [Answer(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data"})]
        with pytest.raises(Refused):
            await page(watch(site, host))

    async def test_a_private_address_needs_permission(self, site: Site, host: Host):
        guarded = Host(http=host.http, clock=host.clock, random=host.random)
        with pytest.raises(Refused):
            await page(watch(site, guarded))
        assert (await page(watch(site, guarded, allow_private_networks=True))).events

    async def test_an_expression_that_never_ends_is_ended_and_holds_nobody_up(self, site: Site, host: Host):
        site.write(f"<p>{'a' * 60}b</p>")
        reading = asyncio.create_task(page(watch(site, host, ignore=["(a+)+$"])))
        turns = 0
        while not reading.done():
            await asyncio.wait([reading], timeout=0.05)
            turns += 1
        assert "took more than 3 s" in str(reading.exception())
        assert turns > 20

    async def test_no_secret_is_in_the_event_or_the_cursor(self, site: Site, host: Host):
        headers = {"X-Pass": "s3cr3t"}
        url = f"{site.url.replace('//', '//me:pa55@')}/page?id=7&api_key=k3y#part"
        batch = await page(Page(Query.model_validate({"url": url, "headers": headers}), host))
        assert batch.events[0].data["url"] == f"{site.url}/page?id=7&api_key=***"
        assert [word for word in ("s3cr3t", "pa55", "k3y") if word in f"{batch!r}"] == []
        assert site.seen[0].headers["x-pass"] == "s3cr3t"

    @pytest.mark.parametrize("cursor", [7, "x", {"of": 1}, []])
    async def test_a_cursor_of_another_kind_is_a_new_beginning(self, site: Site, host: Host, cursor: Any):
        assert (await page(watch(site, host), cursor)).unchanged


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "file:///etc/passwd"},
        {"selector": "p", "json_path": "a"},
        {"attribute": "href"},
        {"selector": "p["},
        {"ignore": ["("]},
        {"ignore": [""]},
        {"ignore": ["a"] * 21},
        {"ignore": ["a" * 501]},
        {"missing": "maybe"},
        {"max_per_tick": 5},
    ],
)
def test_a_wrong_query_is_refused(wrong: Any):
    with pytest.raises(ValidationError):
        Query.model_validate({"url": "https://shop.example", **wrong})


def test_a_message_shows_the_address_and_the_difference():
    assert plugin.delivery is not None
    assert plugin.delivery(Query(url="https://shop.example"), "page").template == "{url} changed\n{diff}"


WORKFLOW = """\
name: watch
trigger:
  type: poll
  poll: {{integration: page, interval: 60s, query: {{url: "{url}/page", allow_private_networks: true}}}}
steps:
  - {{id: say, action: transform, set: {{new: "{{{{.trigger.event.new}}}}"}}}}
"""


@virtual
async def test_the_first_look_is_quiet_and_each_change_runs_once(clock: VirtualClock, tmp_path: Path):
    site = Site(clock)
    async with site.serve():
        (tmp_path / "workflows").mkdir()
        (tmp_path / "workflows" / "watch.yaml").write_text(WORKFLOW.format(url=site.url), "utf-8")
        async with running(tmp_path, clock) as app:
            for text in ("A", "A", "B", "A", "A"):
                site.write(f"<p>{text}</p>")
                await clock.sleep(90)
            runs: list[Any] = (await app.operator.call("runs.list", limit=50))["items"]
    ends = sorted(key.rpartition("#")[2] for run in runs for key in run["event_keys"])
    assert (ends, {run["status"] for run in runs}) == (["2", "3"], {"done"})
