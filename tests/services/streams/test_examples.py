"""There is an example for each system that can be followed, and all of them load."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.operate.load_and_check_configuration import load_directory
from harken.services import registry

EXAMPLES = Path(__file__).parents[3] / "examples" / "brokers"
ENVIRON = {
    "KAFKA_BROKERS": "kafka-1:9092",
    "KAFKA_PASSWORD": "not-a-password",
    "REDIS_URL": "redis://127.0.0.1:6379/0",
    "NATS_URL": "nats://127.0.0.1:4222",
    "RABBITMQ_URL": "amqp://127.0.0.1:5672/",
    "MQTT_URL": "mqtt://127.0.0.1:1883",
}
FOLLOWED = sorted(kind for kind, plugin in registry().items() if plugin.stream is not None)


def test_each_system_that_can_be_followed_has_an_example_that_loads() -> None:
    loaded = load_directory(EXAMPLES, ENVIRON)
    assert [str(finding) for finding in loaded.findings] == []
    assert sorted(feed.kind for feed in loaded.feeds if feed.way == "stream") == FOLLOWED
    assert len(loaded.triggers) == len(FOLLOWED)


@pytest.mark.parametrize("kind", FOLLOWED)
def test_the_example_of_a_system_that_can_be_published_to_does_that(kind: str) -> None:
    text = (EXAMPLES / "workflows" / f"{kind}.yaml").read_text()
    assert f"integration: {kind}" in text
    assert (f"action: {kind}.publish" in text) == ("publish" in registry()[kind].actions)


def test_a_client_library_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harken.extras._is_installed", lambda package: False)
    said = [str(finding) for finding in load_directory(EXAMPLES, ENVIRON).findings]
    named = {kind for kind in FOLLOWED if any(f"pip install 'harken[{kind}]'" in line for line in said)}
    assert named == {"kafka", "mqtt", "nats", "rabbitmq", "redis"}, said
