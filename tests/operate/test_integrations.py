"""Whether an account works, as the reads of its feeds tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harken.config.loaded import Account
from harken.operate.operator import Operator
from tests.operate.operator_world import Office

SLOWER = "status.example answered 429 to GET /incidents"
COMPANY = Account(name="company", kind="json", credential="json:company")


async def company(office: Office) -> Any:
    loaded = replace(office.loaded, integrations={"company": COMPANY})
    answer = await Operator(office.store, office.engine, loaded, office.clock).call("integrations.list", limit=500)
    return next(row for row in answer["items"] if row["name"] == "company")


@pytest.mark.parametrize(
    ("health", "status"),
    [
        ({"failures": 0, "rate_limited": 1}, "waiting"),
        ({"failures": 0, "offline_since": 5.0}, "waiting"),
        ({"failures": 1}, "failing"),
        ({"failures": 2, "rate_limited": 1}, "failing"),
        ({"failures": 0, "state": "paused"}, "failing"),
    ],
)
async def test_an_account_that_has_to_wait_is_not_one_that_does_not_work(
    office: Office, health: dict[str, Any], status: str
) -> None:
    assert (await company(office))["status"] == "ok"
    await office.fails(SLOWER, **health)
    found = await company(office)
    assert (found["status"], found["error"]) == (status, SLOWER)


async def test_a_service_that_cannot_say_whose_a_credential_is_is_told_apart(office: Office) -> None:
    items = (await office.ask("integrations.list", limit=500))["items"]
    assert next(row for row in items if row["name"] == "github")["whoami"] is True
    assert (await company(office))["whoami"] is False
