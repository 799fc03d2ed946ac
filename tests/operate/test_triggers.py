"""What lists and pages about triggers say: stable names, and enough to know what to do next."""

from __future__ import annotations

from datetime import timedelta

from harken.event import Span
from harken.operate.rows import gaps, shorten
from harken.testing import START
from tests.operate.operator_world import Office

LISTED = {
    "name", "type", "status", "reason", "advice", "feed", "integration", "workflow", "interval_seconds", "failures",
    "fired", "last_fired_at", "last_tick_at", "last_read_at", "next_read_at", "paused", "start_line",
}  # fmt: skip
SHOWN = LISTED | {
    "uid", "epoch", "created_at", "schedule", "query", "condition", "mapping", "overlap", "source", "held",
    "held_more", "recent", "identity", "lookback", "cursor", "watermark", "memory", "reads", "last_error",
    "last_error_at", "blocked_until", "calls_left", "coverage", "gaps", "ticks",
}  # fmt: skip


def span(start: int, end: int) -> Span:
    return Span(START + timedelta(hours=start), START + timedelta(hours=end))


async def test_the_names_in_a_list_and_a_page_stay(office: Office) -> None:
    listed = (await office.ask("triggers.list", type="poll"))["items"]
    assert set(listed[0]) >= LISTED
    assert {row["type"] for row in listed} == {"poll"}
    assert set(await office.ask("triggers.show", name="oncall")) >= SHOWN


async def test_a_polled_trigger_says_when_it_was_and_will_be_read(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    row = next(row for row in (await office.ask("triggers.list"))["items"] if row["name"] == "oncall")
    assert (row["status"], row["failures"], row["interval_seconds"]) == ("healthy", 0, 60)
    assert row["last_tick_at"] == row["last_read_at"] < row["next_read_at"]


async def test_a_page_shows_how_far_the_feed_has_come(office: Office) -> None:
    await office.shows(office.incident("INC-1"), office.incident("INC-2"))
    office.clock.advance(7200)
    await office.shows(office.incident("INC-3"))
    shown = await office.ask("triggers.show", name="oncall")
    assert (shown["memory"], shown["reads"], len(shown["coverage"]), len(shown["gaps"])) == (3, 2, 2, 1)
    assert shown["gaps"][0]["start"] == shown["coverage"][0]["end"]
    assert [(tick["result"], tick["new"], "feed" in tick) for tick in shown["ticks"]] == [
        ("events", 1, False),
        ("events", 2, False),
    ]


async def test_the_last_error_stays_on_the_page_with_what_to_do(office: Office) -> None:
    await office.fails("api.example answered 401. Check the token", state="paused", code="attention")
    shown = await office.ask("triggers.show", name="oncall")
    assert (shown["status"], shown["failures"], shown["next_read_at"]) == ("paused", 3, None)
    assert shown["last_error"] == "api.example answered 401. Check the token"
    assert "harken triggers resume oncall" in shown["advice"]
    await office.ask("triggers.reset", name="oncall")
    await office.shows(office.incident("INC-1"))
    after = await office.ask("triggers.show", name="oncall")
    assert (after["status"], after["failures"], after["last_error"]) == ("healthy", 0, shown["last_error"])


async def test_a_failing_trigger_says_how_to_look(office: Office) -> None:
    await office.fails("api.example answered 503")
    assert "harken triggers test oncall" in (await office.ask("triggers.show", name="oncall"))["advice"]


def test_gaps_lie_between_the_spans_whatever_their_order() -> None:
    assert gaps([]) == gaps([span(0, 2)]) == gaps([span(2, 3), span(0, 2)]) == []
    found = gaps([span(4, 5), span(0, 1), span(2, 3)])
    assert [(gap["start"][11:13], gap["end"][11:13]) for gap in found] == [("10", "11"), ("12", "13")]


def test_a_long_cursor_is_shortened_and_says_so() -> None:
    assert shorten(None) == ""
    assert shorten({"tag": 7}) == '{"tag":7}'
    assert shorten("x" * 500) == '"' + "x" * 119 + "… (502 characters)"
