"""Built-ins and plugins are found alike; one that is broken is named and harms nobody."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from harken.services import GROUP, Services, registry
from harken.source import PollSource, PushSource


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group=GROUP)


BUILT_IN = [point(name, f"harken.services.{name}:plugin") for name in ("cron", "json", "rss", "webhook")]


def test_the_built_in_services_are_installed_as_entry_points():
    assert {"cron", "json", "rss", "webhook"} <= set(registry())
    assert registry()["json"].kind == "json"


def test_an_alias_leads_to_the_same_plugin_and_is_not_a_kind():
    services = Services(BUILT_IN)
    assert services["webhook_poll"] is services["json"]
    assert list(services) == ["cron", "json", "rss", "webhook"]


def test_an_unknown_kind_is_a_key_error():
    assert "nonsense" not in Services(BUILT_IN)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module_anywhere:plugin", "ModuleNotFoundError"),
        ("harken.services.json:nothing", "AttributeError"),
        ("harken.services.json:Query", "not a harken.source.Plugin"),
    ],
)
def test_a_broken_plugin_is_named_with_its_reason_and_the_others_work(value: str, reason: str):
    services = Services([point("odd", value), *BUILT_IN])
    assert reason in services.broken["odd"]
    assert "odd" not in services
    assert len(services) == 4


class Slow(EntryPoint):
    """Another thread has its turn while this one is imported."""

    def load(self) -> Any:
        time.sleep(0.02)
        return super().load()


def test_who_looks_one_up_while_another_thread_imports_it_waits_for_it():
    slow = [Slow(name=one.name, value=one.value, group=GROUP) for one in BUILT_IN]
    services = Services(slow)

    def look_up(number: int) -> list[str]:
        name = BUILT_IN[number % len(BUILT_IN)].name
        return [services[name].kind, *services]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(look_up, range(16)))
    assert found == [[BUILT_IN[at % 4].name, "cron", "json", "rss", "webhook"] for at in range(16)]


def test_a_plugin_cannot_take_over_a_built_in_kind():
    services = Services([point("json", "elsewhere.json:plugin"), *BUILT_IN])
    assert services["json"].kind == "json"
    assert "taken" in services.broken["json (elsewhere.json:plugin)"]


def test_looking_one_up_imports_only_that_one_and_no_parser():
    code = (
        "import sys; from harken.services import registry; registry()['cron'];"
        "heavy = ('harken.services.rss', 'feedparser', 'fastfeedparser', 'lxml', 'aiohttp');"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_configuration_loads_only_the_services_that_it_uses(tmp_path: Path):
    steps = "steps:\n  - {id: note, action: transform, set: {text: hi}}\n"
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "w.yaml").write_text(f"name: w\ntrigger: {{schedule: {{every: 10s}}}}\n{steps}")
    code = (
        "import sys; from pathlib import Path; from harken.operate.load_and_check_configuration import load_directory;"
        f"loaded = load_directory(Path({str(tmp_path)!r})); assert not loaded.findings, loaded.findings;"
        "print([kind for kind in ('cron', 'jira', 'rss') if f'harken.services.{kind}' in sys.modules])"
    )
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "['cron']"


def test_every_source_has_its_one_method():
    from harken.services.cron import Activations
    from harken.services.json import JsonListing
    from harken.services.rss import NewsFeed
    from harken.services.webhook import Incoming

    assert all(issubclass(kind, PollSource) for kind in (Activations, JsonListing, NewsFeed))
    assert issubclass(Incoming, PushSource)


@pytest.mark.parametrize("kind", ["cron", "json", "rss", "webhook"])
def test_every_field_of_every_query_is_described_for_forms(kind: str):
    plugin = registry()[kind]
    models = [model for model in (plugin.query, plugin.webhook_query, plugin.destination_query) if model]
    fields = [(name, field.description) for model in models for name, field in model.model_fields.items()]
    assert [name for name, description in fields if not description] == []
