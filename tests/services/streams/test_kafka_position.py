"""What our offsets mean beside those that the brokers still have: with and without ids of topics."""

from __future__ import annotations

from typing import Any

from harken.services.kafka.position import Position, Retained, resume


def at(topic: str = "", generation: int = 0, **offsets: int) -> Position:
    """`at(p0=5)`: the next offset of partition 0 is 5."""
    return Position(topic=topic, generation=generation, offsets={name[1:]: offset for name, offset in offsets.items()})


def have(*ranges: tuple[int, int]) -> dict[int, Retained]:
    return {number: Retained(begin=begin, end=end) for number, (begin, end) in enumerate(ranges)}


def test_nothing_is_lost_while_our_next_offset_is_retained() -> None:
    for retained in (have((0, 5)), have((5, 5)), have((2, 90))):
        assert resume("orders", at("id", p0=5), "id", retained) == (at("id", p0=5), None)


def test_offsets_that_were_deleted_are_counted_over_all_partitions() -> None:
    position, gap = resume("orders", at("id", p0=5, p1=7, p2=1), "id", have((8, 20), (7, 7), (11, 11)))
    assert position == at("id", p0=8, p1=7, p2=11)
    assert gap is not None
    assert gap.messages == 13
    assert gap.reason == "13 messages of orders (partition 0, 2) were deleted before they were read"


def test_a_gap_has_one_name_until_our_position_has_passed_it() -> None:
    before = at("id", p0=5)
    moved, first = resume("orders", before, "id", have((8, 20)))
    _, again = resume("orders", before, "id", have((8, 25)))
    _, later = resume("orders", moved, "id", have((12, 25)))
    assert first is not None and again is not None and later is not None
    assert first.key == again.key != later.key


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert resume("orders", at("id", p0=5), "id", have((0, 9), (0, 4))) == (at("id", p0=5, p1=0), None)


def test_what_a_new_partition_has_already_deleted_is_lost() -> None:
    position, gap = resume("orders", at("id", p0=5), "id", have((0, 9), (3, 4)))
    assert position == at("id", p0=5, p1=3)
    assert gap is not None and gap.messages == 3


def test_a_topic_with_another_id_is_read_from_its_beginning_however_long_it_is() -> None:
    position, gap = resume("orders", at("old", generation=2, p0=5), "new", have((0, 900)))
    assert position == at("new", p0=0)
    assert gap is not None and gap.messages is None
    assert "created anew" in gap.reason


def test_without_ids_a_topic_that_ends_before_our_offset_was_created_anew() -> None:
    position, gap = resume("orders", at(p0=5, p1=3), "", have((0, 9), (0, 2)))
    assert position == at(generation=1, p0=0, p1=0)
    assert gap is not None
    again, second = resume("orders", at(generation=1, p0=5, p1=3), "", have((0, 9), (0, 2)))
    assert again == at(generation=2, p0=0, p1=0)
    assert second is not None and second.key != gap.key


def test_without_ids_a_topic_with_fewer_partitions_was_created_anew() -> None:
    position, gap = resume("orders", at(p0=5, p1=3), "", have((0, 9)))
    assert (position, gap is None) == (at(generation=1, p0=0), False)


def test_an_id_that_was_not_known_before_is_taken_over() -> None:
    assert resume("orders", at(p0=5), "id", have((0, 9))) == (at("id", p0=5), None)
    # and kept when a broker of a mixed cluster does not say it
    assert resume("orders", at("id", p0=5), "", have((0, 9))) == (at("id", p0=5), None)


def test_the_same_topic_that_ends_before_our_offset_goes_on_at_its_end_under_other_names() -> None:
    old = at("id", p0=5, p1=3)
    position, gap = resume("orders", old, "id", have((0, 4), (0, 9)))
    assert position == at("id", generation=1, p0=4, p1=3)
    assert gap is not None and "lost its newest messages" in gap.reason
    assert position.incarnation != old.incarnation


def test_a_position_is_json() -> None:
    import msgspec

    stored: Any = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(at("id", p0=5, p11=3))))
    assert msgspec.convert(stored, Position) == at("id", p0=5, p11=3)
