"""`harken test`: cases run on the real engine in virtual time, and differences are told with their place."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harken.cli.init import FILES
from harken.cli.root import run
from harken.simulation.case_runner import Summary, run_cases, to_junit
from tests.cpu_time import cpu_at_most
from tests.simulation.configuration import write_configuration

ENVIRONMENT = "environment: {DEPLOY_SECRET: not-a-secret}\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return write_configuration(tmp_path)


def cases(site: Path, text: str, name: str = "some.yaml") -> Summary:
    (site / "tests").mkdir(exist_ok=True)
    (site / "tests" / name).write_text(ENVIRONMENT + "cases:\n" + text, "utf-8")
    return run_cases(site)


def problems(summary: Summary) -> list[str]:
    return [str(problem) for result in summary.results for problem in result.problems]


class TestWhatHappens:
    def test_an_event_that_matches_is_one_run_with_its_input_steps_and_output(self, site: Path):
        summary = cases(
            site,
            """
  - name: an urgent incident pages
    given:
      - {event: {title: disk full, urgency: high, status: triggered}, feed: incidents, subject: P1, state: triggered}
    answers:
      - {step: ask, answer: The disk is full.}
      - {action: http, error: 503, times: 1}
    expect:
      runs:
        - workflow: page
          status: done
          events: [P1]
          input: {title: disk full}
          output: {text: The disk is full.}
          steps:
            ask: {action: llm, with: {prompt: Sum up disk full}}
            send: {with: {json: {text: The disk is full.}}, calls: 2}
      verdicts: [{event: P1, trigger: page, outcome: fired}]
      calls:
        - {action: llm}
        - {action: http, with: {url: "https://pager.example/pages"}}
        - {action: http}
      lost: 0
      doubled: 0
""",
        )

        assert problems(summary) == []
        assert [result.passed for result in summary.results] == [True]

    def test_one_that_does_not_match_has_a_reason_with_the_clause(self, site: Path):
        summary = cases(
            site,
            """
  - name: a calm incident starts nothing
    given: [{event: {urgency: low, status: triggered}, feed: incidents, state: triggered}]
    expect:
      runs: []
      verdicts: [{trigger: page, outcome: filtered, clause: 'event.urgency == "high"', reason: event.urgency = "low"}]
""",
        )

        assert problems(summary) == []

    def test_late_repeated_and_returning_events_under_every_fault(self, site: Path):
        summary = cases(
            site,
            """
  - name: whatever happens, each change of state is one event
    given:
      - {event: {id: P1, title: x, urgency: high, status: triggered}, feed: incidents, state: triggered, times: 3}
      - {fault: 429, feed: incidents, for: 10m, retry_after: 2m}
      - {wait: 2m}
      - {event: {id: P1, title: x, urgency: high, status: resolved}, feed: incidents, state: resolved, late: 1m}
      - {crash: commit, after: true, down: 1m}
      - {wait: 20m}
      - {event: {id: P1, title: x, urgency: high, status: triggered}, feed: incidents, state: triggered}
      - {lock: commit, verbs: 2}
      - {sleep: 8h}
      - {clock: -10m}
      - {restart: 5m}
      - {fault: outage, feed: incidents, for: 5m}
      - {event: {id: P2, title: x, urgency: high, status: triggered}, feed: incidents, state: triggered, undated: true}
    expect:
      runs: [{events: [P1]}, {events: [P1]}, {events: [P2]}]
      lost: 0
      doubled: 0
""",
        )

        assert problems(summary) == []

    def test_events_are_gathered_while_time_passes(self, site: Path):
        summary = cases(
            site,
            """
  - name: three orders are one run at once, the fourth waits for its window
    given:
      - {event: {id: 1}, trigger: digest}
      - {event: {id: 2}, trigger: digest}
      - {event: {id: 3}, trigger: digest}
      - {event: {id: 4}, trigger: digest}
    expect:
      runs: [{steps: {count: {output: {text: 3 orders}}}}, {steps: {count: {output: {text: 1 orders}}}}]
      verdicts: [{event: 4, outcome: gathered}]
""",
        )

        assert problems(summary) == []

    def test_a_webhook_that_is_sent_twice_is_one_run(self, site: Path):
        summary = cases(
            site,
            """
  - name: a deploy
    given: [{event: {id: d1}, trigger: deploys, times: 2}, {crash: true}, {event: {id: d2}, trigger: deploys}]
    expect: {runs: [{workflow: deploys, events: [d1]}, {workflow: deploys, events: [d2]}], lost: 0, doubled: 0}
""",
        )

        assert problems(summary) == []

    def test_a_schedule_keeps_its_local_time_when_the_clocks_change(self, site: Path):
        summary = cases(
            site,
            """
  - name: seven in the morning, also after the clocks were set forward
    trigger: morning
    start: 2026-03-28T00:00:00Z
    for: 48h
    expect:
      runs:
        - {steps: {note: {output: {at: "2026-03-28T06:00:00+00:00"}}}}
        - {steps: {note: {output: {at: "2026-03-29T05:00:00+00:00"}}}}
""",
        )

        assert problems(summary) == []

    def test_the_cases_that_init_writes_pass(self, tmp_path: Path):
        assert run(["init", str(tmp_path)]) == 0
        assert "tests/workflows.yaml" in FILES

        summary = run_cases(tmp_path)

        assert problems(summary) == []
        assert len(summary.results) == 2


class TestDifferences:
    def test_each_is_told_with_its_place_what_was_expected_and_what_was(self, site: Path):
        summary = cases(
            site,
            """
  - name: wrong in every way
    given: [{event: {title: x, urgency: high, status: open}, feed: incidents, subject: P1, state: open}]
    expect:
      runs:
        - workflow: digest
          status: failed
          events: [P2]
          input: {title: y, more: 1}
          steps:
            nothing: {}
            send: {with: {method: {matches: ^GET$}}, calls: 0}
      verdicts: [{outcome: filtered}]
      calls: 1
      lost: 1
""",
        )

        assert [line.partition(" ")[2] for line in problems(summary)] == [
            'expect.runs[0].workflow: expected "digest", got "page"',
            'expect.runs[0].status: expected "failed", got "done"',
            'expect.runs[0].events: expected ["P2"], got ["P1"]',
            'expect.runs[0].input.title: expected "y", got "x"',
            "expect.runs[0].input.more: expected 1, and there is none; there: title",
            "expect.runs[0].steps.nothing: this step was not executed; executed: ask, send",
            'expect.runs[0].steps.send.with.method: expected a text that matches "^GET$", got "POST"',
            "expect.runs[0].steps.send.calls: expected 0 calls, there was 1",
            'expect.verdicts[0].outcome: expected "filtered", got "fired"',
            "expect.calls: expected 1 call outside, there were 2: llm, http",
            "expect.lost: expected 1, got 0",
        ]
        assert problems(summary)[0].startswith("tests/some.yaml:8:21: ")

    def test_a_run_that_is_missing_is_explained_by_the_verdicts(self, site: Path):
        summary = cases(
            site,
            """
  - name: nothing
    given: [{event: {urgency: low, status: open}, feed: incidents, subject: P1, state: open}]
    expect: {runs: 1}
""",
        )

        reason = 'event.urgency == "high" is false (event.urgency = "low")'
        expected = f"expect.runs: expected 1 run, there was none: P1: filtered for page, {reason}"
        assert problems(summary) == [f"tests/some.yaml:6:20: {expected}"]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (
                "  - {name: x, expect: {}, expct: {}}",
                "27: cases[0].expct: there is no such setting. Did you mean expect?",
            ),
            (
                "  - {name: x, given: [{evnt: {}}], expect: {}}",
                "24: cases[0].given[0].evnt: there is no such setting. Did you mean event?",
            ),
            (
                "  - {name: x, given: [{wait: 5}], expect: {}}",
                "30: cases[0].given[0].wait: a duration needs a unit. Write 5s for seconds or 5m for minutes",
            ),
            (
                "  - {name: x, given: [{wait: 5s, sleep: 1h}], expect: {}}",
                "23: cases[0].given[0]: has sleep and wait. Write exactly one of event, ticket, fault, crash, lock, "
                "restart, freeze, cut, sleep, clock, wait",
            ),
            (
                "  - {name: x, given: [{event: {}, trigger: pge}], expect: {}}",
                "44: given[0].trigger: there is no trigger pge. Did you mean page?",
            ),
            (
                "  - {name: x, expect: {runs: [{workflow: pag}]}}",
                "42: expect.runs[0].workflow: there is no workflow pag. Did you mean page?",
            ),
        ],
    )
    def test_mistakes_in_the_file_are_errors_with_a_suggestion(self, site: Path, text: str, expected: str):
        summary = cases(site, f"{text}\n")

        assert problems(summary) == [f"tests/some.yaml:3:{expected}"]

    def test_a_trigger_that_was_refused_is_named_with_the_reason(self, site: Path):
        (site / "workflows" / "page.yaml").write_text("name: page\nsteps: 5\n", "utf-8")

        summary = cases(site, "  - {name: x, given: [{event: {}, trigger: page}], expect: {}}\n")

        assert "there is no trigger page." in problems(summary)[0]
        assert "The configuration has errors: workflows/page.yaml:" in problems(summary)[0]


class TestCommand:
    GOOD = "cases:\n  - {name: fine, given: [{event: {}, trigger: deploys}], expect: {runs: 1}}\n"
    BAD = "cases:\n  - {name: broken, given: [{event: {}, trigger: deploys}], expect: {runs: 2}}\n"

    @pytest.fixture
    def mixed(self, site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("DEPLOY_SECRET", "not-a-secret")
        (site / "tests").mkdir()
        (site / "tests" / "good.yaml").write_text(self.GOOD, "utf-8")
        (site / "tests" / "bad.yaml").write_text(self.BAD, "utf-8")
        return site

    def test_it_exits_1_when_a_case_fails(self, mixed: Path, capsys: pytest.CaptureFixture[str]):
        assert run(["--config", str(mixed), "test"]) == 1
        said = capsys.readouterr().out
        assert "FAIL  tests/bad.yaml:2:12: broken" in said
        assert "ok    tests/good.yaml: fine" in said
        assert "1 passed, 1 failed" in said

    def test_a_path_or_a_word_chooses(self, mixed: Path, capsys: pytest.CaptureFixture[str]):
        assert run(["--config", str(mixed), "test", str(mixed / "tests" / "good.yaml")]) == 0
        assert run(["--config", str(mixed), "test", "-k", "FINE"]) == 0
        assert "broken" not in capsys.readouterr().out
        assert run(["--config", str(mixed), "test", str(mixed / "nowhere")]) == 1

    def test_json_and_junit(self, mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        file = tmp_path / "junit.xml"

        assert run(["--config", str(mixed), "test", "--json", "--junit", str(file)]) == 1

        rows = json.loads(capsys.readouterr().out)
        assert [(row["name"], row["passed"]) for row in rows] == [("broken", False), ("fine", True)]
        suites = ElementTree.parse(file).getroot()
        assert (suites.get("tests"), suites.get("failures")) == ("2", "1")
        failure = suites.find("testsuite/testcase/failure")
        assert failure is not None and "expected 2 runs, there was 1" in str(failure.text)

    def test_without_cases_it_says_so(self, site: Path, capsys: pytest.CaptureFixture[str]):
        assert run(["--config", str(site), "test"]) == 0
        assert "There are no cases" in capsys.readouterr().out


def test_junit_holds_no_control_character(site: Path):
    summary = cases(
        site,
        """
  - name: "a bell \\u0007"
    given: [{event: {title: "\\u0001", urgency: high, status: open}, feed: incidents, state: open}]
    expect: {runs: [{input: {title: x}}]}
""",
    )

    assert ElementTree.fromstring(to_junit(summary)) is not None


def test_a_hundred_cases_take_about_a_second_of_work(site: Path):
    one = """
  - name: case {number}
    given: [{{event: {{urgency: high, status: open, title: x}}, feed: incidents, state: open}}]
    expect: {{runs: [{{workflow: page, input: {{title: x}}}}]}}
"""
    cases(site, one.format(number=0))
    # generous, as instrumented runs are slower
    with cpu_at_most(10):
        summary = cases(site, "".join(one.format(number=number) for number in range(100)))
    assert problems(summary) == []
