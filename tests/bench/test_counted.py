"""What the takeover measurement makes of the moments at which feeds were read."""

from __future__ import annotations

from bench.counting_listing import After, Source

ENDS = 120.0


def source(**reads: list[float]) -> Source:
    """A source whose feeds were read at these moments."""
    made = Source()
    for path, times in reads.items():
        for at in times:
            made.answer(path, at)
    return made


def test_the_gap_is_the_time_from_the_end_of_the_lease_to_the_first_read_of_any_feed():
    assert source(a=[95.0, 123.0], b=[96.0, 121.5]).after(ENDS, 2).first == 1.5


def test_it_has_caught_up_when_as_many_feeds_as_were_due_have_been_read():
    assert source(a=[95.0, 123.0], b=[121.5], c=[130.0]).after(ENDS, 2).caught_up == 3.0


def test_a_feed_that_is_read_twice_counts_once():
    assert source(a=[121.0, 122.0, 123.0], b=[125.0]).after(ENDS, 2).caught_up == 5.0


def test_what_nobody_has_read_yet_is_not_caught_up():
    assert source(a=[95.0, 121.0], b=[96.0]).after(ENDS, 2) == After(first=1.0, caught_up=None)


def test_no_read_at_all_after_the_lease_is_no_gap_of_nothing():
    assert source(a=[95.0, 99.0]).after(ENDS, 1) == After(first=None, caught_up=None)


def test_news_are_another_item_at_each_read_and_quiet_reads_show_the_last_one():
    made = Source()
    made.news = True
    shown = [made.answer("/1", 0.0), made.answer("/1", 1.0)]
    made.news = False

    assert shown[0] != shown[1]
    assert made.answer("/1", 2.0) == shown[1]
