"""Replicas that share one store, and whatever befalls them: each occurrence gets exactly one run, from one writer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.soak import SOAK, longer, patience
from tests.system.property import scenarios
from tests.system.property.fleet import played
from tests.system.property.fleet_scenario import fleets
from tests.system.property.fleet_stores import PostgresHome, RedisHome, SqliteHome


def examples(number: int) -> settings:
    return settings(
        max_examples=longer(__file__, number),
        deadline=None,
        print_blob=True,
        # CI sees the same histories every time; new ones are looked for in `make soak`
        derandomize=not SOAK,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(patience(1_800))
class TestThreeReplicasStartOneRunOfEachOccurrence:
    @examples(15)
    @given(scenario=fleets())
    def test_on_sqlite(self, scenario: scenarios.Scenario, room: Path) -> None:
        played(scenario, SqliteHome(room), overlap=SOAK)

    @examples(8)
    @given(scenario=fleets())
    def test_on_redis(self, scenario: scenarios.Scenario, redis: RedisServer) -> None:
        played(scenario, RedisHome(redis), overlap=SOAK)

    @examples(5)
    @given(scenario=fleets())
    def test_on_postgres(self, scenario: scenarios.Scenario, postgres: PostgresServer) -> None:
        played(scenario, PostgresHome(postgres), overlap=SOAK)
