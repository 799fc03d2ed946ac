"""What is read out of a monitor, however odd it is, and how small it is remembered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from harken.services.datadog.cursor import KnownStatus, memory_key, pack, unpack
from harken.services.datadog.event import GroupStatus, group_statuses, is_muted, number_of, word
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.datadog import FakeDatadog
from tests.services.datadog import Watch, served

NOW = int(START.timestamp())


@pytest.fixture
async def fake(clock: HandClock) -> AsyncIterator[FakeDatadog]:
    async with served(clock) as fake:
        yield fake


def monitor(groups: Any = None, **fields: Any) -> dict[str, Any]:
    return {"id": 7, "name": "Load", "multi": True, "overall_state": "OK", "state": {"groups": groups}, **fields}


def alert(at: int = NOW, **fields: Any) -> dict[str, Any]:
    return {"status": "Alert", "last_triggered_ts": at, "last_resolved_ts": 0, "last_nodata_ts": 0, **fields}


WORDS: dict[Any, str] = {"Alert": "triggered", "Warn": "warn", "No Data": "no_data", "OK": "ok", "Skipped": "skipped"}
WORDS |= {"Ignored": "ignored", "Brand New": "unknown", None: "unknown", 3: "unknown", "": "unknown"}


@pytest.mark.parametrize(("theirs", "ours"), WORDS.items())
def test_a_status_in_our_words(theirs: Any, ours: str):
    assert word(theirs) == ours


def test_a_monitor_without_groups_stands_where_its_overall_state_says():
    told = monitor(overall_state="Warn", overall_state_modified="2026-01-05T09:00:00+00:00")
    assert group_statuses(told) == [GroupStatus(group="", status="warn", changed=NOW, entered=NOW, triggered=NOW)]


@pytest.mark.parametrize("name", ["*", "total", "@SYNTHETICS_OVERALL@"])
def test_the_group_of_a_simple_monitor_is_the_monitor(name: str):
    (current,) = group_statuses(monitor({name: alert()}, multi=False))
    assert (current.group, current.status, current.changed) == ("", "triggered", NOW)


@pytest.mark.parametrize("multi", [False, True, None])
def test_a_synthetics_test_is_one_object_although_it_shows_its_places(multi: bool | None):
    groups = {"aws:us-east-2": {"status": "OK"}, "total": {"status": "OK"}, "@SYNTHETICS_OVERALL@": alert()}
    (current,) = group_statuses(monitor(groups, multi=multi))
    assert (current.group, current.status) == ("", "triggered")


def test_groups_are_objects_of_their_own_and_the_total_is_none_of_them():
    groups = {"host:a": alert(), "total": alert(), "host:b": {"status": "OK"}}
    assert [current.group for current in group_statuses(monitor(groups))] == ["host:a", "host:b"]


def test_the_newest_date_is_when_it_changed():
    (current,) = group_statuses(monitor({"host:a": alert(NOW - 50, last_resolved_ts=NOW - 20)}))
    assert (current.changed, current.entered, current.triggered) == (NOW - 20, NOW - 50, NOW - 50)


@pytest.mark.parametrize("silenced", [{"*": None}, {"host:a": NOW + 5}, {"host:a,env:b": None}])
def test_a_group_is_muted_by_a_scope_that_covers_it(silenced: Any):
    assert is_muted(monitor(options={"silenced": silenced}), "host:a,env:b", START)


@pytest.mark.parametrize("silenced", [{}, None, [], {"host:x": None}, {"*": NOW - 5}, {"host:a,env:c": None}])
def test_a_group_is_not_muted_by_other_scopes_or_by_what_has_ended(silenced: Any):
    assert not is_muted(monitor(options={"silenced": silenced}), "host:a,env:b", START)


@pytest.mark.parametrize(
    ("downtime", "muted"),
    [
        ({"active": True, "scope": ["*"], "groups": ["total"]}, True),
        ({"active": True, "scope": ["host:a"], "groups": ["host:a"]}, True),
        ({"active": True, "scope": ["host:b"], "groups": ["host:b"]}, False),
        ({"active": False, "scope": ["*"]}, False),
        ("nonsense", False),
    ],
)
def test_a_group_is_muted_by_a_downtime_that_matches_it(downtime: Any, muted: bool):
    assert is_muted(monitor(matching_downtimes=[downtime]), "host:a", START) is muted


@pytest.mark.parametrize(("id", "number"), [(7, 7), ("7", 7), (True, None), (7.5, None), (None, None), ("7x", None)])
def test_an_id_is_a_number(id: Any, number: int | None):
    assert number_of({"id": id}) == number


ODD: list[Any] = [None, 7, -1, 1.5, True, "text", "", [], [None], {}, {"x": None}, "2026-99-99", 10**30, float("1e308")]
FIELDS = ["name", "type", "query", "message", "tags", "multi", "priority", "modified", "creator", "options", "state"]
FIELDS += ["overall_state_modified", "matching_downtimes"]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("field", FIELDS)
async def test_an_odd_field_hides_neither_its_monitor_nor_the_others(
    fake: FakeDatadog, clock: HandClock, host: Host, field: str, value: Any
):
    dated = "2026-01-05T09:00:30+00:00"
    fields = {"overall_state": "Alert", "overall_state_modified": dated, "multi": True}
    fake.listed = [{"id": 5, **fields, field: value}, monitor({"host:a": alert(NOW + 30)})]
    watch = Watch(fake, clock, host)
    await watch.fires()
    fake.listed = [{"id": 5, **fields, "overall_state": "Warn", field: value}, monitor({"host:a": alert(NOW + 60)})]
    assert {event.subject for event in await watch.fires()} == {"5", "7:host:a"}


@pytest.mark.parametrize("value", ODD)
async def test_an_odd_group_hides_none_of_the_others(fake: FakeDatadog, clock: HandClock, host: Host, value: Any):
    odd = {"status": "Alert", "last_triggered_ts": value, "last_resolved_ts": value, "last_nodata_ts": value}
    fake.listed = [monitor({"host:odd": value, "host:dates": odd, "host:a": alert(NOW + 30)})]
    assert "7:host:a" in {event.subject for event in await Watch(fake, clock, host).fires()}


@pytest.mark.parametrize(
    "item", [None, 7, "text", [], {}, {"id": None, "overall_state": "OK"}, {"id": {}, "name": "x"}]
)
async def test_something_without_an_id_is_told_once_and_hides_no_monitor(
    fake: FakeDatadog, clock: HandClock, host: Host, item: Any
):
    watch = Watch(fake, clock, host)
    fake.listed = [monitor()]
    await watch.fires()
    fake.listed = [item, monitor({"host:a": alert(NOW + 90)})]
    fired = await watch.fires()
    assert [event.subject.partition("-")[0] for event in fired] == ["7:host:a", "unreadable"]
    assert await watch.fires() == []


async def test_an_event_has_the_fields_that_templates_use(fake: FakeDatadog, clock: HandClock, host: Host):
    watch = Watch(fake, clock, host)
    id = fake.monitor("host:a,env:prod", name="Load", tags=["team:a"], priority=2)
    await watch.fires()
    fake.change(id, "Alert", "host:a,env:prod")
    (event,) = await watch.fires()
    assert event.type == "datadog.monitor"
    assert event.occurred_at == START + timedelta(minutes=1)
    assert event.state == "triggered@2026-01-05T09:01:00Z"
    assert event.data == {
        "id": id,
        "name": "Load",
        "status": "triggered",
        "previous_status": "ok",
        "group": "host:a,env:prod",
        "type": "query alert",
        "tags": ["team:a"],
        "message": "The load is high. @team",
        "query": "avg(last_5m):avg:system.load.1{*} > 4",
        "url": f"https://app.datadoghq.com/monitors/{id}?group=host%3Aa%2Cenv%3Aprod",
        "modified": "2026-01-05T09:00:00+00:00",
        "priority": 2,
        "creator": {"name": "Jo Smith", "email": "jo@example.com", "handle": "jo@example.com"},
        "overall_status": "triggered",
        "last_triggered_at": "2026-01-05T09:01:00Z",
        "muted": False,
    }


def test_ten_thousand_groups_are_remembered_in_130_kilobytes():
    memory = {
        memory_key(f"{number}:host:web-{number}"): KnownStatus("ok", NOW + 37 * number) for number in range(10_000)
    }
    assert unpack(pack(memory)) == memory
    assert len(pack(memory)) < 130_000


def test_the_order_in_which_groups_are_seen_does_not_change_what_is_remembered():
    memory = {memory_key("a"): KnownStatus("ok", 0), memory_key("b"): KnownStatus("no_data", 2**32 - 1)}
    assert pack(memory) == pack(dict(reversed(memory.items())))


@pytest.mark.parametrize("text", ["", "?", "AAAA", "eJwDAAAAAAE=", pack({memory_key("a"): KnownStatus("ok", 1)})[:-8]])
def test_a_memory_that_is_no_memory_is_empty(text: str):
    assert unpack(text) == {}
