"""`harken simulate`: nothing is lost or doubled; and where the engine has a bug, it is found and shrunk."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from harken.cli.root import run
from harken.operate.load_and_check_configuration import load_directory
from harken.simulation.case_runner import run_cases
from harken.simulation.made_up_events import shape_of
from harken.simulation.reduced_configuration import Configuration, SharedPlans, in_use
from harken.simulation.script import Arrival, Crash, Script
from harken.simulation.script_from_seed import ALL_FAULTS, generate
from harken.simulation.script_to_case_file import case_of, file_of
from harken.simulation.shrink_failing_script import play, shrink
from tests.simulation.configuration import write_configuration
from tests.simulation.planted import BUGS
from tests.soak import SOAK, longer, patience

FLOWS_OF = {
    "acknowledged before commit": ["pack"],
    "debounce keeps only the last": ["settled"],
    "join drops a part": ["joined"],
}
POLLERS = """\
pollers:
  enabled: true
  jobs:
    - id: weekly
      kind: rss
      agent: ana
      schedule: "0 9 * * 1"
      config: {feed_url: "https://example.com/weekly.xml", deliver: {channel: webhook, to: "https://example.com/x"}}
    - id: paused
      kind: rss
      agent: ana
      schedule: {at: "2027-04-26T15:00:00Z"}
      config: {feed_url: "https://example.com/launch.xml", deliver: {channel: webhook, to: "https://example.com/x"}}
      paused_on_boot: true
"""
MOST_SEEDS = 200
MOST_EVENTS = 10


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_SECRET", "not-a-secret")


def configuration(directory: Path, *flows: str) -> Configuration:
    return in_use(load_directory(write_configuration(directory, *flows)))


@pytest.mark.parametrize("seed", range(longer(__file__, 3)))
def test_nothing_is_lost_or_doubled_whatever_happens(seed: int, tmp_path: Path):
    site = configuration(tmp_path)

    played = play(site, generate(site, seed, days=3 if SOAK else 1))

    assert [str(fault) for fault in played.judgement.faults] == []
    assert played.judgement.shown == played.judgement.recorded > 20
    assert played.judgement.done > 10


def test_feeds_that_are_read_once_a_week_or_wait_for_a_person_lose_nothing(tmp_path: Path):
    write_configuration(tmp_path, "page")
    (tmp_path / "pollers.yaml").write_text(POLLERS, "utf-8")
    main = tmp_path / "harken.yaml"
    main.write_text(main.read_text("utf-8") + "agents: {ana: {webhook: webhook}}\n", "utf-8")
    site = in_use(load_directory(tmp_path))

    played = play(site, generate(site, 2, days=1))

    assert {trigger.name for trigger in site.triggers} > {"weekly", "paused"}
    assert [str(fault) for fault in played.judgement.faults] == []


def test_the_same_seed_is_the_same_history(tmp_path: Path):
    site = configuration(tmp_path, "page", "morning")

    one, other = (play(site, generate(site, 5, days=1)) for _ in range(2))

    assert generate(site, 5, days=1) == generate(site, 5, days=1) != generate(site, 6, days=1)
    assert one == other


def find(site: Configuration, first: int, plans: SharedPlans) -> tuple[int, Script]:
    """The first seed that fails, and its script."""
    for seed in range(first, first + MOST_SEEDS):
        script = generate(site, seed, days=1)
        if play(site, script, plans).judgement.faults:
            return seed, script
    raise AssertionError(f"{MOST_SEEDS} seeds have not found it")


@pytest.mark.timeout(patience(600))
@pytest.mark.parametrize("first", [0, 1_000] if SOAK else [0])
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_and_shrunk_to_a_case_that_fails(
    bug: str, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = configuration(tmp_path, *FLOWS_OF.get(bug, ["page", "digest"]))
    plans = SharedPlans(site.loaded)
    with monkeypatch.context() as patch:
        BUGS[bug](patch)
        _, script = find(site, first, plans)
        judgement = play(site, script, plans).judgement
        smaller, short = shrink(site, script, judgement, plans)
        (tmp_path / "tests").mkdir()
        case = case_of("found", short, smaller, {"lost": 0, "doubled": 0})
        (tmp_path / "tests" / "found.yaml").write_text(file_of([case], {}), "utf-8")
        found = run_cases(tmp_path)

    assert len([item for item in short.items if isinstance(item, Arrival)]) <= MOST_EVENTS
    assert len(short.items) <= MOST_EVENTS
    assert found.failed == 1
    # without the bug the same case passes
    assert run_cases(tmp_path).failed == 0


def test_a_script_is_the_same_after_it_was_written_and_read(tmp_path: Path):
    site = configuration(tmp_path)
    script = generate(site, 11, days=2)
    case = case_of("all of it", script, site, {"lost": 0, "doubled": 0})
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "all.yaml").write_text(file_of([case], {}), "utf-8")

    from harken.simulation.read_test_cases import compile_case, read_file

    file = read_file(tmp_path / "tests" / "all.yaml", "all.yaml")
    assert file.findings == ()
    again, _, _ = compile_case(file.cases[0], site.loaded)

    assert [_rounded(item) for item in again.items] == [_rounded(item) for item in script.items]
    assert (again.start, again.seconds, again.baselined) == (script.start, script.seconds, script.baselined)
    assert {name: again.stand_ins[name] for name in again.stand_ins} == {
        name: one for name, one in script.stand_ins.items() if name in again.stand_ins
    }


def _rounded(item: object) -> object:
    """Without the last bits of a difference of times."""
    if isinstance(item, Arrival) and item.dated is not None:
        gone = None if item.gone is None else round(item.gone, 3)
        return msgspec.structs.replace(item, dated=round(item.dated, 3), gone=gone)
    return item


def test_made_up_events_have_what_conditions_and_templates_read(tmp_path: Path):
    site = configuration(tmp_path, "page")
    shape = shape_of(site.triggers, site.loaded)

    assert {"urgency", "status", "title"} == {path[0] for path in shape.fields}
    script = generate(site, 1, days=3, faults=())
    urgencies = [item.data["urgency"] for item in script.items if isinstance(item, Arrival)]
    assert {"high", "not high"} == set(urgencies)


def test_only_the_faults_that_were_asked_for_happen(tmp_path: Path):
    site = configuration(tmp_path)

    assert all(isinstance(item, Arrival) for item in generate(site, 3, days=3, faults=()).items)
    crashes = generate(site, 3, days=3, faults=("crash",)).items
    assert {type(item) for item in crashes} == {Arrival, Crash}
    assert len(ALL_FAULTS) == len(set(ALL_FAULTS))


class TestCommand:
    def test_it_prints_what_was_lost_and_doubled_and_how_to_repeat_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        write_configuration(tmp_path, "page")

        assert run(["--config", str(tmp_path), "simulate", "--days", "1", "--seed", "4", "--fault", "crash"]) == 0

        said = capsys.readouterr().out
        assert "lost     0\ndoubled  0\n" in said
        assert "The same again: harken simulate --seed 4 --days 1 --fault crash" in said

    def test_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        write_configuration(tmp_path, "page")

        assert run(["--config", str(tmp_path), "simulate", "--days", "0.5", "--seed", "4", "--json"]) == 0

        row = json.loads(capsys.readouterr().out)
        assert (row["lost"], row["doubled"], row["seed"], row["shown"]) == (0, 0, 4, row["recorded"])

    def test_a_history_that_fails_is_written_as_a_case_and_exits_1(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        write_configuration(tmp_path, "page")
        BUGS["> for >= at the start line"](monkeypatch)

        assert run(["--config", str(tmp_path), "simulate", "--days", "1", "--seed", "0", "--seeds", "20"]) == 1

        assert "Play it again: harken test tests/simulated-" in capsys.readouterr().out
        assert run(["--config", str(tmp_path), "test"]) == 1
        assert "lost" in capsys.readouterr().out

    def test_without_a_trigger_it_says_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        assert run(["--config", str(tmp_path), "simulate"]) == 1
        assert "no trigger is configured" in capsys.readouterr().err

    def test_a_store_without_a_history_says_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        write_configuration(tmp_path, "page")

        assert run(["--config", str(tmp_path), "simulate", "--from-history", "7d"]) == 1
        assert "no store with a history" in capsys.readouterr().err


def test_recorded_events_are_played_at_their_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from tests.simulation.recording import record

    site = write_configuration(tmp_path, "page", "deploys")
    before = datetime.now(UTC) - timedelta(hours=30)
    data = {"title": "disk", "urgency": "high", "status": "triggered"}
    record(site, [("incidents", f"P{number}", "triggered", data) for number in range(7)], before)

    assert run(["--config", str(site), "simulate", "--from-history", "2d", "--seed", "1", "--json"]) == 0

    row = json.loads(capsys.readouterr().out)
    assert (row["from_history"], row["shown"], row["recorded"], row["runs"]) == (True, 7, 7, 7)
    assert (row["lost"], row["doubled"]) == (0, 0)
