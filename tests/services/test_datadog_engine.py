"""The whole engine on virtual time: a workflow runs once for each change of a monitor, also after a restart."""

from __future__ import annotations

import shutil
from pathlib import Path

from harken.app import App
from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.datadog import API_KEY, APP_KEY, FakeDatadog
from tests.services import whole
from tests.services.whole import occurrences, running

EXAMPLES = Path(__file__).parents[2] / "examples" / "datadog"
MAIN = """\
models: {{default: echo}}
integrations:
  datadog: {{kind: datadog, api_key: {api_key}, app_key: {app_key}, base_url: "{url}", allow_private_networks: true}}
"""
ALERTS = """\
name: datadog-service-alerts
trigger:
  type: poll
  poll:
    integration: datadog
    query:
      tags: ["team:platform", "service:api"]
      statuses: [triggered, warn]
    interval: 60s
    input_mapping:
      monitor: "{{.trigger.event.id}}"
steps:
  - id: analyze
    action: llm
    model: balanced
    prompt: "{{.trigger.event.name}}: {{.trigger.event.previous_status}} then {{.trigger.event.status}}"
  - id: quiet
    action: datadog.mute
    monitor: "{{.inputs.monitor}}"
    group: "{{.trigger.event.group}}"
    for: 1h
"""


def write(directory: Path, fake: FakeDatadog, *, api_key: str = API_KEY) -> None:
    whole.write(directory, MAIN.format(url=fake.url, api_key=api_key, app_key=APP_KEY), alerts=ALERTS)


async def fired(app: App) -> list[str]:
    """The objects that runs were for, each run being done."""
    return sorted(key.partition("@")[0] for key in await occurrences(app))


@virtual
async def test_a_workflow_runs_once_for_each_change_over_many_reads_and_a_restart(clock: VirtualClock, tmp_path: Path):
    fake = FakeDatadog(clock, cap=2)
    old, wide = fake.monitor(tags=["team:platform"]), fake.monitor("host:a", "host:b", tags=["service:api"])
    others = [fake.monitor(tags=["team:other"]) for _ in range(4)]
    fake.change(old, "Alert")
    await clock.sleep(3600)
    async with fake.serve():
        write(tmp_path, fake)
        async with running(tmp_path, clock) as app:
            await clock.sleep(300)
            assert await fired(app) == []
            fake.change(wide, "Alert", "host:a")
            fake.change(others[0], "Alert")
            await clock.sleep(600)
            fake.change(wide, "OK", "host:a")
            await clock.sleep(5)
            fake.change(wide, "Alert", "host:a")
            await clock.sleep(600)
            fake.remind(wide, "host:a")
            await clock.sleep(300)
            assert await fired(app) == [f"{wide}:host:a"] * 2
        fake.change(wide, "Warn", "host:b")
        await clock.sleep(9 * 3600)
        async with running(tmp_path, clock) as app:
            await clock.sleep(600)
            fake.change(old, "OK")
            await clock.sleep(300)
            fake.change(old, "Alert")
            await clock.sleep(600)
            assert await fired(app) == [str(old), f"{wide}:host:a", f"{wide}:host:a", f"{wide}:host:b"]
    told = [downtime["attributes"] for downtime in fake.downtimes.values()]
    muted = [(one["monitor_identifier"]["monitor_id"], one["scope"]) for one in told]
    assert muted == [(wide, "host:a"), (wide, "host:a"), (wide, "host:b"), (old, "*")]


@virtual
async def test_the_first_alerts_of_a_datadog_whose_clock_is_behind_run_and_older_ones_do_not(
    clock: VirtualClock, tmp_path: Path
):
    fake = FakeDatadog(clock)
    fake.skew = -300.0
    ids = [fake.monitor(tags=["team:platform"]) for _ in range(9)]
    old = fake.monitor(tags=["team:platform"])
    async with fake.serve():
        write(tmp_path, fake)
        fake.change(old, "Alert")
        await clock.sleep(30)
        async with running(tmp_path, clock) as app:
            for id in ids:
                fake.change(id, "Alert")
                await clock.sleep(45)
            await clock.sleep(300)
            assert await fired(app) == sorted(map(str, ids))


@virtual
async def test_250_alerts_at_once_run_250_times(clock: VirtualClock, tmp_path: Path):
    fake = FakeDatadog(clock, cap=60)
    ids = [fake.monitor(tags=["team:platform"]) for _ in range(250)]
    async with fake.serve():
        write(tmp_path, fake)
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            for id in ids:
                fake.change(id, "Alert")
            await clock.sleep(1200)
            assert await fired(app) == sorted(map(str, ids))


@virtual
async def test_the_digest_of_the_examples_tells_of_several_changes_in_one_run(clock: VirtualClock, tmp_path: Path):
    fake = FakeDatadog(clock)
    ids = [fake.monitor(name=name, tags=["team:platform"]) for name in ("Load", "Disk", "Queue")]
    async with fake.serve():
        write(tmp_path, fake)
        shutil.copy(EXAMPLES / "workflows" / "alert-digest.yaml", tmp_path / "workflows" / "alerts.yaml")
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            fake.silence(ids[2])
            for id in ids:
                fake.change(id, "Alert")
                await clock.sleep(61)
            fake.change(ids[0], "OK")
            await clock.sleep(1800)
            (run,) = (await app.operator.call("runs.list", limit=500))["items"]
            steps = (await app.operator.call("runs.show", id=run["id"]))["steps"]
    assert [key.partition("@")[2].partition("@")[0] for key in run["event_keys"]] == ["triggered", "triggered", "ok"]
    assert "Disk : triggered (before: ok) https://app.datadoghq.com/monitors/1002" in str(steps)
    assert "Load : ok (before: triggered)" in str(steps)


def test_the_examples_load_with_nothing_but_keys():
    keys = {"DATADOG_API_KEY": API_KEY, "DATADOG_APP_KEY": APP_KEY, "DATADOG_SITE": "datadoghq.eu"}
    loaded = load_directory(EXAMPLES, keys)
    assert [str(finding) for finding in loaded.findings] == []
    assert {trigger.name for trigger in loaded.triggers} == {"service-alerts", "alert-digest", "mute-flapping"}


@virtual
async def test_a_limit_is_waited_for_and_loses_nothing(clock: VirtualClock, tmp_path: Path):
    fake = FakeDatadog(clock)
    id = fake.monitor(tags=["team:platform"])
    async with fake.serve():
        write(tmp_path, fake)
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            fake.limit, fake.period = 0, 300
            fake.change(id, "Alert")
            await clock.sleep(400)
            fake.limit = None
            await clock.sleep(900)
            assert await fired(app) == [str(id)]
    assert sum(seen.status == 429 for seen in fake.seen) <= 3


@virtual
async def test_a_wrong_key_pauses_the_feed_with_what_to_do(clock: VirtualClock, tmp_path: Path):
    fake = FakeDatadog(clock)
    async with fake.serve():
        write(tmp_path, fake, api_key="wrong" * 6)
        async with running(tmp_path, clock) as app:
            await clock.sleep(600)
            (feed,) = [state for state in await app.store.feeds() if state.name.startswith("datadog-")]
    assert feed.health.state == "paused"
    assert "does not accept the API key" in feed.health.message
    assert "harken integrations datadog configure" in feed.health.message
    assert "wrongwrong" not in feed.health.message
