"""Muting and unmuting, as often as a step may be tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, Refused, RetryLater
from harken.services.datadog import plugin
from harken.source import Call, Host
from harken.testing import HandClock
from harken.testing.fakes.datadog import FakeDatadog
from harken.testing.fakes.server import Answer
from tests.services.datadog import account, served


@pytest.fixture
async def fake(clock: HandClock) -> AsyncIterator[FakeDatadog]:
    async with served(clock) as fake:
        yield fake


async def does(name: str, fake: FakeDatadog, host: Host, key: str = "run:mute", **params: Any) -> Any:
    act = plugin.actions[name]
    call = Call(params=act.params.model_validate(params), account=account(fake), host=host, idempotency_key=key)
    done = await act.run(call)
    return msgspec.json.decode(msgspec.json.encode(done))


def current(fake: FakeDatadog) -> list[str]:
    return [id for id, found in fake.downtimes.items() if found["attributes"]["status"] == "active"]


async def test_a_monitor_is_muted_for_a_while(fake: FakeDatadog, host: Host):
    done = await does("mute", fake, host, monitor=12, **{"for": "1h30m"})
    assert done == {
        "downtime": "downtime-1",
        "monitor": 12,
        "group": "",
        "until": "2026-01-05T10:30:00+00:00",
        "new": True,
    }
    told = fake.downtimes["downtime-1"]["attributes"]
    assert (told["monitor_identifier"], told["scope"]) == ({"monitor_id": 12}, "*")


async def test_a_group_is_muted_until_an_instant(fake: FakeDatadog, host: Host):
    done = await does("mute", fake, host, monitor="12", group="host:a,env:prod", until="2026-01-05T20:00:00+01:00")
    assert done["until"] == "2026-01-05T19:00:00+00:00"
    assert fake.downtimes["downtime-1"]["attributes"]["scope"] == "host:a AND env:prod"


async def test_a_step_that_is_tried_again_later_mutes_once(fake: FakeDatadog, clock: HandClock, host: Host):
    first = await does("mute", fake, host, monitor=12, **{"for": "1h"})
    clock.advance(600)
    again = await does("mute", fake, host, monitor=12, **{"for": "1h"})
    assert again == {**first, "new": False}
    assert len(fake.downtimes) == 1


async def test_what_is_muted_for_as_long_already_is_left_alone(fake: FakeDatadog, host: Host):
    await does("mute", fake, host, "one", monitor=12)
    assert (await does("mute", fake, host, "two", monitor=12, **{"for": "1h"}))["new"] is False


async def test_another_run_that_wants_it_longer_mutes_anew(fake: FakeDatadog, host: Host):
    await does("mute", fake, host, "one", monitor=12, **{"for": "1h"})
    assert (await does("mute", fake, host, "two", monitor=12, **{"for": "2h"}))["new"] is True


async def test_other_monitors_and_groups_and_tags_are_no_reason_not_to_mute(fake: FakeDatadog, host: Host):
    await does("mute", fake, host, "one", monitor=13)
    await does("mute", fake, host, "two", monitor=12, group="host:b")
    assert (await does("mute", fake, host, "three", monitor=12, group="host:a"))["new"] is True


async def test_a_mute_is_found_behind_many_others(fake: FakeDatadog, host: Host):
    for number in range(130):
        await does("mute", fake, host, f"other {number}", monitor=1000 + number)
    await does("mute", fake, host, monitor=12)
    assert (await does("mute", fake, host, monitor=12))["new"] is False


async def test_unmuting_ends_the_mutes_of_the_monitor_and_no_others(fake: FakeDatadog, host: Host):
    await does("mute", fake, host, "one", monitor=12)
    await does("mute", fake, host, "two", monitor=12, group="host:a")
    await does("mute", fake, host, "three", monitor=13)
    done = await does("unmute", fake, host, monitor=12)
    assert done == {"monitor": 12, "group": "", "ended": ["downtime-1", "downtime-2"]}
    assert current(fake) == ["downtime-3"]
    assert (await does("unmute", fake, host, monitor=12))["ended"] == []


async def test_unmuting_a_group_leaves_the_others_muted(fake: FakeDatadog, host: Host):
    await does("mute", fake, host, "one", monitor=12, group="host:a")
    await does("mute", fake, host, "two", monitor=12, group="host:b")
    assert (await does("unmute", fake, host, monitor=12, group="host:b"))["ended"] == ["downtime-2"]


@pytest.mark.parametrize(
    "group", ["host:a OR *", "*", "host:*", 'host:"a"', "host:a)", "-host:a", "nokey", "host:a,", "a:b\n"]
)
def test_a_group_that_would_be_more_than_a_group_is_refused(group: str):
    with pytest.raises(ValidationError, match="not the name of a group"):
        plugin.actions["mute"].params.model_validate({"monitor": 1, "group": group})


TWO_ENDS = {"for": "1h", "until": "2026-01-05T20:00:00Z"}


@pytest.mark.parametrize(
    "params", [{"for": "5"}, {"for": "0s"}, {"until": "tomorrow"}, TWO_ENDS, {"monitor": 0}, {"scope": "*"}]
)
def test_a_mute_that_makes_no_sense_is_refused(params: Any):
    with pytest.raises(ValidationError):
        plugin.actions["mute"].params.model_validate({"monitor": 1, **params})


async def test_an_end_that_has_passed_is_refused(fake: FakeDatadog, host: Host):
    with pytest.raises(Refused, match="has passed"):
        await does("mute", fake, host, monitor=12, until="2020-01-01T00:00:00Z")


async def test_without_the_scope_a_person_is_told_which_one_is_missing(fake: FakeDatadog, host: Host):
    fake.scopes = frozenset({"monitors_read"})
    with pytest.raises(NeedsAttention, match="monitors_downtime"):
        await does("mute", fake, host, monitor=12)


async def test_trouble_while_muting_is_tried_later(fake: FakeDatadog, host: Host):
    fake.answers.append(Answer(status=503))
    with pytest.raises(RetryLater):
        await does("mute", fake, host, monitor=12)


@pytest.mark.parametrize("data", [{"a": 1}, 5, "x"])
async def test_an_answer_without_a_list_is_tried_again(fake: FakeDatadog, host: Host, data: Any):
    fake.answers = [Answer(body=msgspec.json.encode({"data": data}))]
    with pytest.raises(RetryLater, match="without a list of downtimes"):
        await does("mute", fake, host, monitor=12)


async def test_downtimes_of_a_strange_shape_are_nobodys(fake: FakeDatadog, host: Host):
    strange: list[Any] = [None, 5, [], {}, {"attributes": None}, {"attributes": {"monitor_identifier": []}}]
    fake.answers = [Answer(body=msgspec.json.encode({"data": strange}))]
    assert (await does("mute", fake, host, monitor=12))["new"] is True
