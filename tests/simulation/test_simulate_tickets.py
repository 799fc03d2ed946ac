"""`harken simulate` with trackers: no ticket is run twice or lost, and its labels tell how its run ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harken.cli.root import run
from harken.operate.load_and_check_configuration import load_directory
from harken.simulation.case_runner import run_cases
from harken.simulation.judge import Judgement
from harken.simulation.read_test_cases import compile_case, read_file
from harken.simulation.reduced_configuration import Configuration, SharedPlans, in_use
from harken.simulation.script import Crash, Freeze, Happening, Script, TicketChange, Trouble
from harken.simulation.script_from_seed import generate
from harken.simulation.script_to_case_file import case_of, file_of
from harken.simulation.shrink_failing_script import play, shrink
from tests.simulation.configuration import write_configuration
from tests.simulation.planted import TICKET_BUGS
from tests.soak import SOAK, longer

MAIN = """\
models: {default: echo}
trackers:
  acme:
    type: github
    organization: acme
    webhook_secret: ${HOOK_SECRET}
    polling: {enabled: true, interval_seconds: 60}
projects:
  shop: {tracker: acme, resolution: {repo: shop}, pipeline_from_label: {fix: fix-bug, scan: fix-bug}}
"""
PIPELINE = """\
name: fix-bug
steps:
  - {id: think, action: wait, for: 90s}
  - {id: work, action: transform, set: {said: "{{.trigger.event.ref}}"}}
"""
FEED = "tracker/acme"
MOST_ITEMS = 10
MOST_SEEDS = 200


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "not-a-token-of-anybody")
    monkeypatch.setenv("HOOK_SECRET", "not-a-secret-of-anybody-0123")


def write_tracker(directory: Path) -> Path:
    (directory / "workflows").mkdir(parents=True)
    (directory / "harken.yaml").write_text(MAIN, "utf-8")
    (directory / "workflows" / "fix-bug.yaml").write_text(PIPELINE, "utf-8")
    return directory


def configuration(directory: Path) -> Configuration:
    loaded = load_directory(write_tracker(directory / "site"))
    assert [str(finding) for finding in loaded.findings] == []
    return in_use(loaded)


def opened(webhooks: int = 1, lag: float = 0.0, at: float = 10.0) -> TicketChange:
    return TicketChange(at=at, feed=FEED, ticket="1", what="open", labels=("fix",), webhooks=webhooks, lag=lag)


def changed(at: float, what: str, *labels: str) -> TicketChange:
    verb: Any = what
    return TicketChange(at=at, feed=FEED, ticket="1", what=verb, labels=labels)


def judgement(site: Configuration, *items: Happening, replicas: int = 1) -> Judgement:
    return play(site, Script(items=items, seconds=6_000.0, replicas=replicas)).judgement


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("seed", range(1, 1 + longer(__file__, 1)))
def test_no_ticket_is_lost_run_twice_or_mislabelled_whatever_happens(seed: int, replicas: int, tmp_path: Path):
    site = configuration(tmp_path)

    found = play(site, generate(site, seed, days=1 if SOAK else 0.3, replicas=replicas)).judgement

    assert [str(fault) for fault in found.faults] == []
    assert found.tickets >= 3


@pytest.mark.parametrize(
    ("items", "runs", "done"),
    [
        ((opened(),), 1, 1),
        ((opened(webhooks=0),), 1, 1),
        ((opened(webhooks=2, lag=50),), 1, 1),
        # the first sweep looks for it when it cannot be read yet
        ((opened(lag=50, at=0.0),), 1, 1),
        ((opened(), changed(4_000.0, "again")), 2, 2),
        ((opened(), changed(40.0, "unlabel", "fix")), 1, 0),
        ((opened(), changed(40.0, "close")), 1, 0),
        ((opened(), Trouble(at=20.0, feed=FEED, kind="unavailable", seconds=900.0)), 1, 1),
        ((opened(), Crash(at=60.0, verb="settle", down=600.0)), 1, 1),
    ],
    ids=["told", "only found", "told twice", "swept", "again", "withdrawn", "closed", "away", "killed"],
)
def test_each_wish_of_a_person_is_one_run(items: tuple[Happening, ...], runs: int, done: int, tmp_path: Path):
    found = judgement(configuration(tmp_path), *items)

    assert [str(fault) for fault in found.faults] == []
    assert (found.tickets, found.runs, found.done) == (1, runs, done)


def test_a_replica_that_freezes_at_work_on_a_ticket_leaves_one_run_and_one_label(tmp_path: Path):
    freezes = [Freeze(at=20.0, verb="settle", replica=number, seconds=1_200.0) for number in (1, 2)]

    found = judgement(configuration(tmp_path), opened(), *freezes, replicas=3)

    assert [str(fault) for fault in found.faults] == []
    assert (found.runs, found.done) == (1, 1)


def told_twice(site: Configuration) -> Script:
    return Script(items=(opened(webhooks=2), changed(1_500.0, "label", "bug")))


def failing_label(site: Configuration) -> Script:
    """The run ends after a minute and a half, and its label is to be written when the platform is away."""
    away = Trouble(at=108.0, feed=FEED, kind="unavailable", seconds=600.0)
    return Script(items=(opened(), away, changed(900.0, "label", "x")))


@pytest.mark.parametrize(
    ("bug", "kind", "script_of"),
    [
        ("a run is claimed without its slot", "doubled", told_twice),
        ("a label that failed is given up", "mislabelled", failing_label),
    ],
)
def test_a_bug_planted_into_the_work_on_tickets_is_found_and_shrunk_to_a_case_that_fails(
    bug: str,
    kind: str,
    script_of: Callable[[Configuration], Script],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    site = configuration(tmp_path)
    with monkeypatch.context() as patch:
        TICKET_BUGS[bug](patch)
        script = script_of(site)
        found = play(site, script).judgement
        smaller, short = shrink(site, script, found)
        tests = tmp_path / "site" / "tests"
        tests.mkdir()
        case = case_of("found", short, smaller, {"lost": 0, "doubled": 0, "mislabelled": 0})
        (tests / "found.yaml").write_text(file_of([case], {}), "utf-8")
        again = run_cases(tmp_path / "site")

    assert kind in {fault.kind for fault in found.faults}
    assert len(short.items) <= MOST_ITEMS
    assert again.failed == 1
    # without the bug the same case passes
    assert run_cases(tmp_path / "site").failed == 0


def test_seeds_find_a_run_that_is_claimed_without_its_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    site = configuration(tmp_path)
    plans = SharedPlans(site.loaded)
    TICKET_BUGS["a run is claimed without its slot"](monkeypatch)

    played = (play(site, generate(site, seed, days=0.3), plans).judgement for seed in range(MOST_SEEDS))

    assert "doubled" in next({fault.kind for fault in found.faults} for found in played if found.faults)


def test_what_people_do_is_the_same_after_it_was_written_and_read(tmp_path: Path):
    site = configuration(tmp_path)
    script = generate(site, 11, days=2, faults=("late", "duplicate"))
    file = tmp_path / "all.yaml"
    file.write_text(file_of([case_of("all of it", script, site, {"mislabelled": 0})], {}), "utf-8")

    again, feeds, _ = compile_case(read_file(file, "all.yaml").cases[0], site.loaded)

    assert again.items == script.items
    assert {"open", "label"} <= {item.what for item in again.items if isinstance(item, TicketChange)}
    assert feeds == [FEED]


@pytest.mark.parametrize(
    ("given", "said"),
    [("tracker: acm", "there is no tracker acm. Did you mean acme?"), ("project: shp", "acme has no project shp")],
)
def test_a_ticket_of_something_unknown_is_an_error_with_a_suggestion(given: str, said: str, tmp_path: Path):
    site = write_tracker(tmp_path / "site")
    (site / "tests").mkdir()
    text = f"cases:\n  - name: unknown\n    given: [{{ticket: 1, {given}}}]\n    expect: {{runs: 0}}\n"
    (site / "tests" / "some.yaml").write_text(text, "utf-8")

    [result] = run_cases(site).results

    assert said in result.problems[0].message


class TestCommand:
    def test_it_prints_tickets_and_labels(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        site = write_tracker(tmp_path / "site")

        assert run(["--config", str(site), "simulate", "--days", "0.1", "--seed", "4", "--fault", "crash"]) == 0

        said = capsys.readouterr().out
        assert "tickets  3\n" in said
        assert "labels   0 do not match their runs\n" in said

    def test_without_a_tracker_it_says_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        site = write_configuration(tmp_path / "site", "page")

        assert run(["--config", str(site), "simulate", "--days", "0.1", "--seed", "4", "--json"]) == 0

        row = json.loads(capsys.readouterr().out)
        assert (row["tickets"], row["mislabelled"]) == (0, 0)
        assert row["notes"] == ["This configuration has no tracker, so no tickets were simulated."]
