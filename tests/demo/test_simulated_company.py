from __future__ import annotations

from random import Random

from harken.demo.simulated_company import World
from harken.testing.clock import HandClock


def lived(moments: int) -> World:
    clock = HandClock()
    world = World(clock, Random(7))
    world.open()
    for _ in range(moments):
        clock.advance(1)
        world.advance()
        world.page(0, 500)
    return world


def test_history_before_the_opening_is_listed_and_not_expected():
    world = World(HandClock(), Random(1))
    world.open()

    listed, more = world.page(0, 500)

    assert len(listed) == 30
    assert not more
    assert world.expected == {"triage": [], "urgent": [], "news": [], "deploys": []}


def test_pages_cover_the_listing_without_overlap_newest_first():
    world = lived(10)

    whole, _ = world.page(0, 500)
    first, more = world.page(0, 20)
    second, _ = world.page(20, 500)

    assert more
    assert [*first, *second] == whole
    assert [incident.created_at for incident in whole] == sorted((i.created_at for i in whole), reverse=True)


def test_a_status_that_no_read_has_shown_never_vanishes():
    clock = HandClock()
    world = World(clock, Random(3))
    world.open()
    for _ in range(20):
        clock.advance(5)
        world.advance()

    listed, _ = world.page(0, 500)

    assert {incident.status for incident in listed} == {"triggered"}


def test_incidents_change_status_come_late_and_share_instants():
    world = lived(60)
    listed, _ = world.page(0, 500)
    instants = [incident.created_at for incident in listed]

    assert world.late > 3
    assert len(set(instants)) < len(instants)
    assert {incident.status for incident in listed} == {"triggered", "acknowledged", "resolved"}
    assert any(name.endswith(".4") for name in world.expected["triage"]), "back to triggered: A, B, C, A"


def test_every_expected_occurrence_has_its_own_name():
    expected = lived(60).expected

    assert all(len(set(names)) == len(names) for names in expected.values())
    assert set(expected["urgent"]) < set(expected["triage"])
