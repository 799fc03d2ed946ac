"""What a position remembers of messages, until the broker is known to have their acknowledgement."""

from __future__ import annotations

from harken.services.mqtt.redeliveries import Deliveries, Position, mark_of


def begun(*unconfirmed: str, count: int = 0) -> Deliveries:
    return Deliveries(Position(session="s", count=count, unconfirmed=unconfirmed))


def test_a_mark_is_of_number_topic_and_body() -> None:
    marks = {mark_of(1, b"a", b"x"), mark_of(2, b"a", b"x"), mark_of(1, b"b", b"x"), mark_of(1, b"a", b"y")}
    assert len(marks) == 4
    assert mark_of(1, b"ab", b"c") != mark_of(1, b"a", b"bc")


def test_equal_messages_are_told_apart_by_what_their_sender_calls_them() -> None:
    marks = {mark_of(1, b"a", b"x", *names) for names in [(), (b"1",), (b"2",), (b"", b"1"), (b"1", b""), (b"a", b"x")]}
    assert len(marks) == 6


def test_a_batch_is_remembered_until_a_ping_after_its_acknowledgement_is_answered() -> None:
    deliveries = begun()
    deliveries.take(["a", "b"], 2)
    assert list(deliveries.position.unconfirmed) == ["a", "b"]
    deliveries.acknowledge(["a", "b"], ping=3)
    deliveries.confirm(2)
    deliveries.take(["c"], 1)
    assert list(deliveries.position.unconfirmed) == ["a", "b", "c"]
    deliveries.acknowledge(["c"], ping=4)
    deliveries.confirm(3)
    deliveries.take(["d"], 1)
    assert list(deliveries.position.unconfirmed) == ["c", "d"]
    assert deliveries.position.count == 4


def test_what_was_not_confirmed_on_the_connection_before_is_a_repeat_until_the_broker_rests() -> None:
    deliveries = begun("a", "b", count=2)
    assert deliveries.is_repeat("a")
    assert not deliveries.is_repeat("c")
    deliveries.take(["a", "c"], 1)
    assert list(deliveries.position.unconfirmed) == ["a", "b", "c"]
    deliveries.acknowledge(["a", "c"], ping=1)
    deliveries.rest()
    assert deliveries.is_repeat("b"), "the acknowledgements may still be under way"
    deliveries.confirm(1)
    deliveries.rest()
    assert not deliveries.is_repeat("b")
    assert deliveries.position == Position(session="s", count=3)
