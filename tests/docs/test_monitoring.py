"""The alert rules and the dashboard in examples/monitoring use only what /metrics really shows; promtool tries them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harken.testing import VirtualClock, virtual
from harken.testing.fakes import Answer
from tests.downloads.debian import environment, program
from tests.system.hostile.misbehaving_server import HOOK
from tests.system.hostile.test_run_metrics import ITEMS, NOTE, TELL, write
from tests.system.hostile.world import House, listing

MONITORING = Path(__file__).parents[2] / "examples" / "monitoring"
METRIC = re.compile(r"\b((?:harken|poller|triggers)_\w+)(?:\{([^}]*)\})?")
OF_PROMETHEUS = {"job", "instance", "le"}
JOB = """\
pollers:
  jobs:
    - id: watch
      kind: json
      agent: ana
      schedule: {every_secs: 60}
      config:
        url: "URL/all"
        items_path: items
        allow_private_networks: true
        deliver: {channel: webhook, to: "URL/all"}
"""


def alert_rules() -> Iterator[tuple[str, str]]:
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]


def panels() -> Iterator[tuple[str, str]]:
    board = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']}", target["expr"]
    for variable in board["templating"]["list"]:
        query: Any = variable["query"]
        yield f"variable {variable['name']}", query["query"] if isinstance(query, dict) else query


EXPRESSIONS = [*alert_rules(), *panels()]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of every metric on the page of a Harken that has read, run, held, delivered and failed."""
    found: dict[str, set[str]] = {}

    @virtual
    async def exports(clock: VirtualClock) -> None:
        page = await page_of_a_busy_one(tmp_path_factory.mktemp("busy"), clock)
        for name in re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE):
            found[name] = set()
        for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", page, re.MULTILINE):
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))

    exports()
    return found


async def page_of_a_busy_one(directory: Path, clock: VirtualClock) -> str:
    async with listing(clock) as shop:
        write(directory, shop.url, hook=(HOOK, NOTE), plain=(ITEMS, NOTE), teller=(ITEMS, TELL))
        (directory / "pollers.yaml").write_text(JOB.replace("URL", shop.url))
        house = House(directory, clock)
        await house.up()
        await clock.sleep(90)
        await house.ask("triggers.pause", name="plain")
        shop.add("one")
        await clock.sleep(120)
        shop.answers.extend(Answer(status=401) for _ in range(20))
        shop.add("two")
        await house.ask("workflows.run", name="teller")
        await clock.sleep(600)
        page = (await house.app._telemetry.scrape()).decode()
        await house.down()
        return page


def test_what_the_check_compares_with_is_a_whole_page(exported: dict[str, set[str]]) -> None:
    assert exported["harken_runs_held"] == {"trigger", "hold"}
    assert exported["harken_dead_letters"] == {"trigger"}
    assert exported["harken_deliveries_total"] == {"channel", "result"}
    assert exported["poller_ticks_total"] == {"kind", "agent", "job_id", "status"}


@pytest.mark.parametrize(
    ("what", "expression"), EXPRESSIONS, ids=[f"{at}-{what}" for at, (what, _) in enumerate(EXPRESSIONS)]
)
def test_rules_and_dashboard_name_only_metrics_and_labels_that_are_exported(
    exported: dict[str, set[str]], what: str, expression: str
) -> None:
    used = METRIC.findall(expression)
    known = OF_PROMETHEUS.union(*(exported.get(name, set()) for name, _ in used))
    selected = {label for _, selector in used for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)}
    grouped = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}

    assert [name for name, _ in used if name not in exported] == []
    assert (selected | grouped) - known == set()


def test_every_kind_of_outcome_is_watched() -> None:
    shown = {name for _, expression in EXPRESSIONS for name, _ in METRIC.findall(expression)}

    assert {
        "harken_runs_total",
        "harken_dead_letters",
        "harken_runs_held",
        "harken_webhooks_total",
        "harken_webhooks_refused_total",
        "harken_deliveries_total",
    } <= shown


@pytest.mark.parametrize(
    "check", ["check config prometheus.yml", "check rules alerts.yaml", "test rules alerts_test.yaml"]
)
def test_promtool_accepts_the_rules_and_they_alert_when_they_should(check: str) -> None:
    promtool = program("prometheus")

    done = subprocess.run(
        [promtool, *check.split()],
        cwd=MONITORING,
        env=environment(promtool),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout + done.stderr
