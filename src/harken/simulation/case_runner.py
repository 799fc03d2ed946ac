"""Runs test cases one after the other on one virtual loop, and tells what differs, and where it is written."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from harken.config.findings import Finding, Place, format_path
from harken.config.loaded import Loaded
from harken.config.yaml.nodes import locate
from harken.errors import HarkenError, Misconfigured
from harken.feed import INTERNAL
from harken.http.known_secret_redaction import redact
from harken.operate.load_and_check_configuration import load_directory
from harken.simulation.engine import Simulation, without_logs
from harken.simulation.expect_block_differences import Outcome, differences
from harken.simulation.judge import judge
from harken.simulation.read_test_cases import Case, CaseFile, Unfit, compile_case, find_files, read_file, shown_name
from harken.simulation.reduced_configuration import SharedPlans, in_use
from harken.testing import VirtualClock, VirtualLoop, run_virtual

__all__ = ["CaseResult", "Problem", "Summary", "run_case", "run_cases", "to_junit"]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as expected, or wrong in the file itself."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        path = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}:{self.column}: {path}{self.message}"


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one case went. A file that cannot be read counts as one case without a name."""

    file: str
    name: str
    line: int
    column: int
    seconds: float = 0.0
    problems: tuple[Problem, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.problems


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    results: tuple[CaseResult, ...]
    seconds: float

    @property
    def failed(self) -> int:
        return sum(not result.passed for result in self.results)


def run_cases(
    directory: Path,
    path: Path | None = None,
    *,
    word: str = "",
    on_result: Callable[[CaseResult], None] = lambda result: None,
) -> Summary:
    """Run the cases whose name or file has the word; without one, all. Raise NotFound for a path that is not there."""
    began = time.perf_counter()
    files = [read_file(found, shown_name(found, directory)) for found in find_files(directory, path)]
    results: list[CaseResult] = []

    async def main(clock: VirtualClock) -> None:
        configurations = _Configurations(directory)
        for file in files:
            for result in await _run_file(file, word, configurations):
                results.append(result)
                on_result(result)

    with without_logs():
        run_virtual(main)
    return Summary(results=tuple(results), seconds=time.perf_counter() - began)


class _Configurations:
    """The configuration as loaded with each environment that a file of cases has, and its compiled workflows."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._loaded: dict[tuple[tuple[str, str], ...], tuple[Loaded, SharedPlans]] = {}

    def get(self, environment: Mapping[str, str]) -> tuple[Loaded, SharedPlans]:
        key = tuple(sorted(environment.items()))
        if key not in self._loaded:
            loaded = load_directory(self._directory, {**os.environ, **environment})
            self._loaded[key] = (loaded, SharedPlans(loaded))
        return self._loaded[key]


async def _run_file(file: CaseFile, word: str, configurations: _Configurations) -> list[CaseResult]:
    if file.findings:
        first = file.findings[0]
        problems = tuple(_of_finding(finding) for finding in file.findings)
        return [CaseResult(file=file.file, name="", line=first.line, column=first.column, problems=problems)]
    results = []
    for case in file.cases:
        if word.casefold() in f"{file.file} {case.block.name}".casefold():
            loaded, plans = configurations.get(file.environment)
            results.append(await run_case(case, loaded, plans))
    return results


def _of_finding(finding: Finding) -> Problem:
    message = f"{finding.message}. {finding.fix}" if finding.fix else finding.message
    path = format_path(finding.path)
    return Problem(file=finding.file, line=finding.line, column=finding.column, path=path, message=message)


async def run_case(case: Case, loaded: Loaded, plans: SharedPlans) -> CaseResult:
    """Run one case on the running virtual loop."""
    began = time.perf_counter()
    problems = await _problems(case, loaded, plans)
    place = case.place
    return CaseResult(
        file=case.file,
        name=case.block.name,
        line=place.line,
        column=place.column,
        seconds=time.perf_counter() - began,
        problems=tuple(problems),
    )


async def _problems(case: Case, loaded: Loaded, plans: SharedPlans) -> list[Problem]:
    try:
        outcome = await _play(case, loaded, plans)
    except Unfit as error:
        return [_problem(case, error.path, _with_refused(error, loaded))]
    except HarkenError as error:
        return [_problem(case, (), redact(str(error), loaded.secrets))]
    return [_problem(case, found.path, found.message) for found in differences(case.block.expect, outcome)]


async def _play(case: Case, loaded: Loaded, plans: SharedPlans) -> Outcome:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise Misconfigured("cases run on virtual time only")
    script, feeds, answers = compile_case(case, loaded)
    simulation = Simulation(in_use(loaded, feeds), script, loop, answers=answers, plans=plans)
    await simulation.play()
    judgement = await judge(simulation)
    runs = [await simulation.run(run.id) for run in await simulation.runs()]
    events = await simulation.events()
    await simulation.close()
    return Outcome(
        events=[event for event in events if event.feed != INTERNAL or event.verdicts],
        runs=runs,
        effects=simulation.effects.did,
        judgement=judgement,
    )


def _with_refused(error: Unfit, loaded: Loaded) -> str:
    """The sentence; a name may be unknown because what has it was refused."""
    sentence = f"{error.message}. {error.fix or 'See: harken config check'}"
    refused = [str(finding) for found in loaded.refused.values() for finding in found if finding.severity == "error"]
    stop = "" if sentence.endswith(("?", ".")) else "."
    return f"{sentence}{stop} The configuration has errors: {refused[0]}" if refused else sentence


def _problem(case: Case, path: Sequence[str | int], message: str) -> Problem:
    place = locate(case.node, tuple(path)) if path else case.place
    place = place if place.line else Place(case.file)
    return Problem(file=case.file, line=place.line, column=place.column, path=format_path(tuple(path)), message=message)


def to_junit(summary: Summary) -> str:
    """The results as JUnit XML: a suite for each file."""
    suites = ElementTree.Element(
        "testsuites",
        name="harken test",
        tests=str(len(summary.results)),
        failures=str(summary.failed),
        time=f"{summary.seconds:.3f}",
    )
    for file in dict.fromkeys(result.file for result in summary.results):
        mine = [result for result in summary.results if result.file == file]
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=file,
            tests=str(len(mine)),
            failures=str(sum(not result.passed for result in mine)),
            time=f"{sum(result.seconds for result in mine):.3f}",
        )
        for result in mine:
            suite.append(_junit_case(result))
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _junit_case(result: CaseResult) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase",
        classname=result.file,
        name=_printable(result.name or result.file),
        file=result.file,
        line=str(result.line),
        time=f"{result.seconds:.3f}",
    )
    if result.problems:
        failure = ElementTree.SubElement(case, "failure", message=_printable(result.problems[0].message))
        failure.text = _printable("\n".join(map(str, result.problems)))
    return case


def _printable(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return "".join(char if char in "\n\t" or char >= " " else "\ufffd" for char in text)
