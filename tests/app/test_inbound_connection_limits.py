"""Who may connect, who has to go for whom, and when a time is over: all of it as a table."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from harken.app.inbound_connection_limits import LOOPBACK, ConnectionTable, Limits, Phase, Place, group_of

STRANGER = "203.0.113.7"


def table(connections: int = 3, per_address: int = 9, reserved: int = 0) -> ConnectionTable[str]:
    return ConnectionTable(Limits(connections=connections, per_address=per_address, reserved=reserved))


def joined(table: ConnectionTable[str], *phases: Phase, address: str = STRANGER) -> list[Place[str]]:
    """Connections in these phases; each came a second after the one before."""
    places = []
    for second, phase in enumerate(phases):
        place = table.admit(f"{phase} {second}", address, float(second)).place
        assert place is not None
        if phase != "head":
            table.move(place, phase, float(second))
        places.append(place)
    return places


@pytest.mark.parametrize(
    ("phases", "goes"),
    [
        (("head", "head", "head"), "head 0"),
        (("busy", "idle", "head"), "idle 1"),
        (("busy", "head", "idle"), "head 1"),
        (("idle", "head", "lingering"), "lingering 2"),
        (("body", "busy", "head"), "head 2"),
        (("busy", "stalled", "body"), "stalled 1"),
        (("busy", "busy", "body"), "body 2"),
        (("busy", "busy", "busy"), None),
    ],
)
@pytest.mark.parametrize("limit", ["connections", "address"])
def test_idle_ones_are_closed_first_and_one_that_is_answered_never(
    limit: str, phases: tuple[Phase, ...], goes: str | None
) -> None:
    full = table(connections=3) if limit == "connections" else table(connections=9, per_address=3)
    joined(full, *phases)
    admission = full.admit("new", STRANGER, 9.0)
    assert (admission.closed.connection if admission.closed else None) == goes
    assert (admission.place is not None, admission.limit, len(full)) == (goes is not None, limit, 3)


def test_the_limit_of_an_address_is_its_own() -> None:
    found = table(connections=9, per_address=2)
    joined(found, "busy", "busy")
    assert found.admit("a third", STRANGER, 3.0).place is None
    assert found.admit("another", "203.0.113.8", 3.0).place is not None


def test_a_proxy_has_no_limit_of_its_own() -> None:
    behind = ConnectionTable[str](Limits(connections=9, per_address=2, proxies=("10.0.0.0/24",)))
    joined(behind, "busy", "busy", "busy", address="10.0.0.5")
    assert behind.admit("a fourth", "10.0.0.5", 4.0).limit == ""


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("", ""),
    ],
)
def test_addresses_of_one_host_count_as_one(address: str, group: str) -> None:
    assert group_of(address, tuple(map(ip_network, LOOPBACK))) == group


def test_the_reserve_is_for_the_api_alone_and_is_used_last() -> None:
    full = table(connections=2, reserved=1)
    first, _ = joined(full, "busy", "busy")
    assert full.admit("a stranger", STRANGER, 3.0).place is None
    api = full.admit("the api", "127.0.0.1", 3.0, may_use_reserve=True).place
    assert api is not None
    assert api.in_reserve
    assert len(full) == 3
    # strangers do not take the place of an idle connection in the reserve
    full.move(api, "idle", 4.0)
    assert full.admit("a stranger", STRANGER, 5.0).place is None
    again = full.admit("the api again", "127.0.0.1", 5.0, may_use_reserve=True)
    assert again.closed is api
    assert again.place is not None
    assert again.place.in_reserve
    full.move(again.place, "busy", 6.0)
    assert full.admit("too many", "127.0.0.1", 6.0, may_use_reserve=True).place is None
    full.remove(first)
    later = full.admit("later", "127.0.0.1", 7.0, may_use_reserve=True).place
    assert later is not None
    assert not later.in_reserve


def test_each_phase_has_its_deadline_and_an_answer_has_none() -> None:
    found = ConnectionTable[str](Limits(head_seconds=10, body_seconds=30, idle_seconds=75))
    joined(found, "head", "body", "busy", "idle", "lingering", "stalled")
    over = {at: [place.phase for place in found.overdue(at)] for at in (5.9, 6.0, 10.0, 31.0, 78.0, 305.0)}
    assert over[5.9] == []
    assert over[6.0] == ["lingering"]
    assert over[10.0] == ["head", "lingering"]
    assert over[31.0] == ["head", "body", "lingering"]
    assert over[78.0] == ["head", "body", "idle", "lingering"]
    assert over[305.0] == ["head", "body", "idle", "lingering", "stalled"]


def test_a_new_phase_has_the_whole_time_again_and_the_same_phase_has_not() -> None:
    found = ConnectionTable[str](Limits(head_seconds=10, body_seconds=30))
    early, late = joined(found, "head", "head")
    found.move(early, "body", 9.0)
    assert found.overdue(10.9) == []
    assert found.overdue(11.0) == [late]
    assert found.overdue(39.0) == [late, early]


def test_what_has_ended_is_forgotten_and_may_be_removed_twice() -> None:
    found = table()
    places = joined(found, "head", "busy", "idle")
    for place in (*places, *places):
        found.remove(place)
    assert (len(found), found.overdue(1e9), found._groups) == (0, [], {})


@pytest.mark.parametrize(
    ("descriptors", "connections"), [(1_024, 512), (800, 512), (799, 511), (320, 32), (256, 1), (64, 1)]
)
def test_connections_leave_descriptors_for_the_store_and_the_api(descriptors: int, connections: int) -> None:
    assert Limits(connections=512, reserved=32).within(descriptors, 256).connections == connections
