"""The time line of a trigger: what becomes of events that might come, by the rules of the commit."""

from __future__ import annotations

from typing import Any

from harken.feed import Debounce, Dedupe, Digest, Join, Part, Throttle, Trigger
from harken.match import stories

PARTS = tuple(Part(name=name, by="event.id") for name in ("order", "payment"))


def drawn(**trigger: Any) -> list[str]:
    made = Trigger(name="t", feed="f", workflow="w", workflow_rev="r", **trigger)
    return [line for story in stories(made) for line in story.lines()]


def test_a_plain_trigger_has_none() -> None:
    assert drawn() == []


def test_a_digest_starts_when_its_window_is_over() -> None:
    assert drawn(gather=Digest(window=300))[-1] == "  +5m  the run starts with 3 events; the next event opens another"


def test_a_full_digest_starts_at_once() -> None:
    assert drawn(gather=Digest(window=300, max=2))[-1].startswith("  +2m  the run starts with 2 events")


def test_a_debounce_is_postponed_until_its_longest_wait() -> None:
    assert drawn(gather=Debounce(window=60, max_wait=200, by="event.x")) == [
        "debounce for each event.x",
        "      0s  event 1 opens a run: due at +1m",
        "    +48s  event 2 joins it: due at +1m48s",
        "  +1m36s  event 3 joins it: due at +2m36s",
        "  +2m24s  event 4 joins it: due at +3m20s",
        "  +3m12s  event 5 joins it: due at +3m20s",
        "  +3m20s  the run starts with 5 events; the next event opens another",
    ]


def test_a_join_is_drawn_complete_and_incomplete() -> None:
    lines = drawn(gather=Join(parts=PARTS, within=900))
    assert "  +4m30s  payment comes: the run starts with 2 events" in lines
    assert lines[-1] == "  +15m  the run is cancelled: not all parts came in time"


def test_parts_in_another_order_do_not_complete_a_join_that_has_one() -> None:
    lines = drawn(gather=Join(parts=PARTS, within=900, form="then", on_miss="run"))
    assert lines[-1] == "    +15m  the run starts with what is there"


def test_a_join_without_a_part_is_drawn_with_and_without_it() -> None:
    lines = drawn(gather=Join(parts=PARTS, within=900, none=("payment",)))
    assert "  +15m  the run starts with what is there" in lines
    assert lines[-1] == "  +4m30s  payment comes: the run is cancelled"


def test_a_throttle_spaces_what_comes_at_once() -> None:
    lines = drawn(throttle=Throttle(most=100, per=60))
    assert lines[-2:] == ["  +1m  the run of event 101 starts", "  +1m  the run of event 102 starts"]
    dropped = drawn(throttle=Throttle(most=1, per=60, rest="drop"))
    assert dropped[-1] == "  0s  event 3 is skipped; the next run may start at +1m"


def test_dedupe_is_drawn_too() -> None:
    assert len(drawn(dedupe=Dedupe(by="event.x", within=60))) == 4
