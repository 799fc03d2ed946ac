"""`harken simulate --replicas`: several replicas share one store, and nothing is lost or doubled whoever fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harken.cli.root import run
from harken.operate.load_and_check_configuration import load_directory
from harken.simulation.case_runner import run_cases
from harken.simulation.read_test_cases import compile_case, read_file
from harken.simulation.reduced_configuration import Configuration, SharedPlans, in_use
from harken.simulation.script import Arrival, Crash, Cut, Freeze, Happening, Restart, Script
from harken.simulation.script_from_seed import generate
from harken.simulation.script_to_case_file import case_of, file_of
from harken.simulation.shrink_failing_script import play, shrink
from tests.simulation.configuration import write_configuration
from tests.simulation.planted import FLEET_BUGS
from tests.soak import SOAK, longer, patience

MOST_SEEDS = 200
MOST_ITEMS = 10
# those that find it soon: `make soak` looks through all seeds from 0 on
FIRST_SEEDS = {"the lease is not checked at a commit": 3, "the claim is not checked at a step": 4}
HIGH = {"title": "disk", "urgency": "high", "status": "triggered"}


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_SECRET", "not-a-secret")


def configuration(directory: Path, *flows: str) -> Configuration:
    return in_use(load_directory(write_configuration(directory, *flows)))


def incident(at: float, subject: str) -> Arrival:
    return Arrival(at=at, feed="incidents", subject=subject, type="json", data=HIGH, state="open", dated=at)


@pytest.mark.parametrize("seed", range(longer(__file__, 1)))
def test_nothing_is_lost_or_doubled_whatever_befalls_three_replicas(seed: int, tmp_path: Path):
    site = configuration(tmp_path)

    played = play(site, generate(site, seed, days=3 if SOAK else 1, replicas=3))

    assert [str(fault) for fault in played.judgement.faults] == []
    assert played.judgement.shown == played.judgement.recorded > 20
    assert played.judgement.done > 10
    assert played.kills and played.freezes and played.cuts


@pytest.mark.parametrize(
    "items",
    [
        (Crash(at=5.0, verb="commit", replica=number, down=3_600.0) for number in (1, 2)),
        (Freeze(at=5.0, verb="commit", replica=number, seconds=1_200.0) for number in (1, 2)),
        (Freeze(at=5.0, verb="settle", after=True, replica=number, seconds=1_200.0) for number in (1, 2)),
        (Cut(at=5.0, verb="commit", after=True, replica=number, seconds=1_200.0) for number in (1, 2)),
        (Restart(at=15.0, replica=number, down=600.0) for number in (1, 2)),
    ],
    ids=["crash", "freeze with a page", "freeze at the end of a run", "cut", "stop"],
)
def test_what_one_replica_leaves_behind_another_takes_over_once(items: tuple[Happening, ...], tmp_path: Path):
    site = configuration(tmp_path, "page")
    script = Script(items=(*items, incident(10.0, "P1"), incident(1_900.0, "P2")), seconds=4_000.0, replicas=3)

    played = play(site, script)

    assert played.judgement.faults == ()
    assert (played.judgement.recorded, played.judgement.done) == (2, 2)
    assert played.kills + played.freezes + played.cuts + played.restarts


def test_the_same_seed_is_the_same_history_of_replicas(tmp_path: Path):
    site = configuration(tmp_path, "page")

    one, other = (play(site, generate(site, 5, days=0.2, replicas=3)) for _ in range(2))

    assert one == other


def find(site: Configuration, first: int, plans: SharedPlans) -> Script:
    """The script of the first seed that fails."""
    for seed in range(first, first + MOST_SEEDS):
        script = generate(site, seed, days=0.1, faults=("freeze",), replicas=3)
        if play(site, script, plans).judgement.faults:
            return script
    raise AssertionError(f"{MOST_SEEDS} seeds have not found it")


@pytest.mark.timeout(patience(600))
@pytest.mark.parametrize("bug", FLEET_BUGS if SOAK else list(FLEET_BUGS)[:1])
def test_a_bug_planted_into_what_replicas_share_is_found_and_shrunk_to_a_case_that_fails(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    site = configuration(tmp_path, "page")
    plans = SharedPlans(site.loaded)
    with monkeypatch.context() as patch:
        FLEET_BUGS[bug](patch)
        script = find(site, 0 if SOAK else FIRST_SEEDS[bug], plans)
        smaller, short = shrink(site, script, play(site, script, plans).judgement, plans)
        (tmp_path / "tests").mkdir()
        case = case_of("found", short, smaller, {"lost": 0, "doubled": 0})
        (tmp_path / "tests" / "found.yaml").write_text(file_of([case], {}), "utf-8")
        found = run_cases(tmp_path)

    assert len(short.items) <= MOST_ITEMS
    assert (found.failed, short.replicas > 1) == (1, True)
    # without the bug the same case passes
    assert run_cases(tmp_path).failed == 0


def test_a_script_of_replicas_is_the_same_after_it_was_written_and_read(tmp_path: Path):
    site = configuration(tmp_path, "page")
    script = generate(site, 11, days=2, replicas=3, faults=("crash", "freeze", "cut", "lock", "restart"))
    case = case_of("all of it", script, site, {"lost": 0, "doubled": 0})
    file = tmp_path / "all.yaml"
    file.write_text(file_of([case], {}), "utf-8")

    again, _, _ = compile_case(read_file(file, "all.yaml").cases[0], site.loaded)

    befell = [item for item in script.items if not isinstance(item, Arrival)]
    assert [item for item in again.items if not isinstance(item, Arrival)] == befell
    assert {type(item).__name__ for item in befell} == {"Crash", "Freeze", "Cut", "Lock", "Restart"}
    assert again.replicas == 3


@pytest.mark.parametrize("given", ["{freeze: commit}", "{cut: true, for: 5m}", "{crash: true, replica: 2}"])
def test_a_case_in_which_a_replica_is_missing_says_how_many_it_needs(given: str, tmp_path: Path):
    write_configuration(tmp_path, "page")
    (tmp_path / "tests").mkdir()
    text = f"cases:\n  - name: alone\n    given: [{given}]\n    expect: {{runs: 0}}\n"
    (tmp_path / "tests" / "alone.yaml").write_text(text, "utf-8")

    [result] = run_cases(tmp_path).results

    assert "Add replicas: 2 to the case" in result.problems[0].message


class TestCommand:
    def test_it_prints_what_befell_the_replicas(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        write_configuration(tmp_path, "page")
        words = ["simulate", "--days", "0.2", "--seed", "4", "--replicas", "3", "--fault", "freeze", "--fault", "crash"]

        assert run(["--config", str(tmp_path), *words]) == 0

        said = capsys.readouterr().out
        assert "replicas 3: killed " in said
        assert "faults   crash " in said
        assert "lost     0\ndoubled  0\n" in said
        assert "3 replicas need PostgreSQL or Redis" in said
        assert "The same again: harken simulate --seed 4 --days 0.2 --replicas 3 --fault freeze --fault crash" in said

    def test_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        write_configuration(tmp_path, "page")

        assert (
            run(["--config", str(tmp_path), "simulate", "--days", "0.2", "--seed", "4", "--replicas", "2", "--json"])
            == 0
        )

        row = json.loads(capsys.readouterr().out)
        assert (row["lost"], row["doubled"], row["replicas"]) == (0, 0, 2)
        assert row["planned"]["crash"] >= row["kills"]

    def test_a_fault_of_replicas_needs_replicas(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        write_configuration(tmp_path, "page")

        assert run(["--config", str(tmp_path), "simulate", "--fault", "freeze"]) == 1
        assert "Add --replicas 3" in capsys.readouterr().err
