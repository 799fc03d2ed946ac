"""Moving a trigger to another time: shown first, then done exactly."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from harken.config.settings import Retention, Settings
from harken.errors import Malformed, Refused
from harken.event import Outcome
from harken.operate.engine import Shown
from tests.operate.operator_world import POLLED, Office


def shown(office: Office, key: str, outcome: Outcome = "fired", age: float = 60.0) -> Shown:
    at = office.clock.now() - timedelta(seconds=age)
    return Shown(key=key, subject=key, type="json.item", outcome=outcome, occurred_at=at)


async def test_a_preview_says_what_is_read_again_what_is_known_and_what_would_fire(office: Office) -> None:
    await office.shows(
        office.incident("EARLY", age=600), office.incident("QUIET", urgency="low", age=600), office.incident("NOW")
    )
    office.engine.shown_since = (
        shown(office, "NOW", "duplicate"),
        shown(office, "EARLY", "duplicate", age=600),
        shown(office, "MISSED"),
        shown(office, "OLD", age=7200),
    )
    before = (await office.ask("triggers.show", name="oncall"))["start_line"]
    answer = await office.ask("triggers.seek", name="oncall", to="30m")
    assert (answer["read_again"], answer["would_fire"], answer["known"], answer["direction"]) == (4, 2, 1, "back")
    assert {row["key"]: row["outcome"] for row in answer["items"]} == {
        "EARLY": "fired",
        "MISSED": "fired",
        "NOW": "duplicate",
        "QUIET": "filtered",
    }
    assert (answer["done"], answer["from"]) == (False, before)
    assert (await office.ask("triggers.show", name="oncall"))["start_line"] == before


async def test_with_its_token_exactly_that_is_done(office: Office) -> None:
    await office.shows(office.incident("A"))
    looked = await office.ask("triggers.seek", name="oncall", to="30m")
    office.clock.advance(45)
    done = await office.ask("triggers.seek", name="oncall", to="30m", token=looked["token"])
    assert (done["done"], done["to"]) == (True, looked["to"])
    state = next(one for one in await office.store.triggers() if one.name == "oncall")
    assert (state.backfilling, state.start_line.isoformat()[:19]) == (True, looked["to"][:19])
    assert (await office.store.state(POLLED.name)).next_due == office.clock.now()
    assert office.engine.nudges > 0
    with pytest.raises(Refused, match="something has changed"):
        await office.ask("triggers.seek", name="oncall", to="30m", token=looked["token"])


async def test_forward_nothing_is_read_again(office: Office) -> None:
    await office.shows(office.incident("A"))
    office.clock.advance(600)
    looked = await office.ask("triggers.seek", name="oncall", to="1m")
    assert (looked["direction"], looked["read_again"]) == ("forward", 0)
    await office.ask("triggers.seek", name="oncall", to=looked["to"], token=looked["token"])
    state = next(one for one in await office.store.triggers() if one.name == "oncall")
    assert (state.backfilling, state.start_line) == (False, office.clock.now() - timedelta(seconds=60))


async def test_where_there_is_no_past_to_read_it_is_refused_with_the_reason(office: Office) -> None:
    await office.shows(office.incident("A"))
    with pytest.raises(Refused, match="was sent to it"):
        await office.ask("triggers.seek", name="deploys", to="1h")
    with pytest.raises(Refused, match="into the future"):
        await office.ask("triggers.seek", name="oncall", to="2100-01-01T00:00:00Z")
    with pytest.raises(Malformed, match="not the token"):
        await office.ask("triggers.seek", name="oncall", to="1h", token="nonsense")
    office.engine.shown_since = (Shown(key="X", subject="X", type="json.item", outcome="fired"),)
    with pytest.raises(Refused, match="have no time"):
        await office.ask("triggers.seek", name="oncall", to="1h")
    short = Settings(retention=Retention.model_validate({"runs": "1h"}))
    office.operator.loaded = replace(office.loaded, settings=short)
    with pytest.raises(Refused, match="not known what has fired"):
        await office.ask("triggers.seek", name="oncall", to="2h")
