"""`pytest --workers 6`: the tests are collected once, by a process that then forks as many workers as it is told.

pytest-xdist starts its workers as programs, and each of them imports and collects all tests: with six workers and
18,000 tests that is 107 s of CPU before the first test runs, here 18 s. The rest is as there: tests with the same
`worker_group` run in one worker, one after the other, and a worker that dies fails the test that it was at.

A test with the marker `again_alone` that fails is run once more when all others are over, and the machine has nothing
else to do. What it said the first time is printed at the end either way. It is for tests of a browser, whose own time
limits nobody can move; no test of the promise has it. At most three: more than that is no coincidence.
"""

from __future__ import annotations

import atexit
import os
import random
import signal
import sys
import warnings
from collections import deque
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NoReturn

import pytest
from _pytest.terminal import TerminalReporter
from _pytest.tmpdir import TempPathFactory

__all__ = ["deal", "takes_long"]

NEIGHBOURS = 16
"""How many tests of one file a worker gets at once, as they may share a fixture of their file."""
AHEAD = 2
"""How many tests a worker must know: what a test set up is taken down at once if the next one does not need it."""
MOST_AGAIN = 3
AGAIN = "again"
"""The outcome of a test that failed and is run once more."""
LONG = (
    "tests/system/",
    "tests/docs/test_walk_through.py",
    "tests/mcp/test_conformance.py",
    "tests/operate/test_backtest_parity.py",
)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    return (AGAIN, "A", "AGAIN") if report.outcome == AGAIN else None


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    for report in terminalreporter.stats.get(AGAIN, ()):
        terminalreporter.section(f"failed at first, and was run again: {report.nodeid}", sep="_")
        terminalreporter.write_line(report.longreprtext)


def takes_long(item: pytest.Item) -> bool:
    return item.nodeid.startswith(LONG) or item.get_closest_marker("process") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="N", help="run the tests in N forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    workers = session.config.getoption("--workers")
    if not workers or session.config.option.collectonly or session.testsfailed:
        return None
    Dealer(session).run(workers)
    return True


def deal(items: Sequence[pytest.Item]) -> list[list[int]]:
    """The tests in portions, by their number: those of a group, some of a file, or a single one that takes long.

    What takes longest comes first, so that no worker is still busy with it when the others are done.
    """
    portions: list[list[int]] = []
    groups: dict[str, list[int]] = {}
    file: Path | None = None
    for index, item in enumerate(items):
        marker = item.get_closest_marker("worker_group")
        if marker is not None:
            file = None
            if marker.args[0] not in groups:
                portions.append(groups.setdefault(marker.args[0], []))
            groups[marker.args[0]].append(index)
        elif file is not None and item.path == file and len(portions[-1]) < NEIGHBOURS and not takes_long(item):
            portions[-1].append(index)
        else:
            file = None if takes_long(item) else item.path
            portions.append([index])
    return sorted(portions, key=lambda portion: sum(takes_long(items[index]) for index in portion), reverse=True)


class Worker:
    """A forked process as the one that deals out sees it."""

    def __init__(self, number: int, pid: int, connection: Connection, tests: Sequence[int]) -> None:
        self.number = number
        self.pid = pid
        self.connection = connection
        self.tests = deque(tests)
        self.complete = False

    def give(self, portion: Sequence[int]) -> None:
        self.tests.extend(portion)
        self.connection.send(portion)

    def give_no_more(self) -> None:
        if not self.complete:
            self.complete = True
            self.connection.send(None)


class Dealer:
    """Forks the workers, deals the tests out, and reports what they say as if it had run them itself."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._portions = deque(deal(session.items))
        self._workers: dict[Connection, Worker] = {}
        self._indexes = {item.nodeid: index for index, item in enumerate(session.items)}
        self._again: list[int] = []
        # made before the first fork: the directories of all workers are below it, and go with it
        self._directory = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    def run(self, workers: int) -> None:
        """Return when all tests have run, or when so many have failed that no more are wanted (`-x`, `--maxfail`)."""
        for number in range(workers):
            self._fork(number, ())
        try:
            self._take_all()
            if self._again and not self._session.shouldfail:
                self._fork(workers, self._again)
                self._take_all()
        finally:
            # only after Ctrl-C there are any; they take down what they have set up, as nobody asks them for more
            for connection, worker in self._workers.items():
                connection.close()
                os.waitpid(worker.pid, 0)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)

    def _take_all(self) -> None:
        while self._workers:
            for connection in wait(list(self._workers)):
                assert isinstance(connection, Connection)
                self._take(self._workers[connection])

    def _fork(self, number: int, left: Sequence[int]) -> None:
        here, there = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for other in (here, *self._workers):
                other.close()
            _work(self._session, there, left, self._directory / f"worker{number}")
        there.close()
        self._workers[here] = Worker(number, pid, here, left)
        self._deal_to(self._workers[here])

    def _deal_to(self, worker: Worker) -> None:
        while len(worker.tests) < AHEAD and self._portions and not self._session.shouldfail:
            worker.give(self._portions.popleft())
        if len(worker.tests) < AHEAD:
            worker.give_no_more()

    def _take(self, worker: Worker) -> None:
        try:
            kind, value = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._bury(worker)
            return
        config = self._session.config
        if kind == "report":
            report = config.hook.pytest_report_from_serializable(config=config, data=value)
            if report.failed and self._runs_again(report.nodeid):
                report.outcome = AGAIN
            config.hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            config.hook.pytest_warning_recorded.call_historic(kwargs=value)
        else:
            worker.tests.popleft()
            self._deal_to(worker)

    def _runs_again(self, nodeid: str) -> bool:
        """Whether this test has a second try; it has none where so many fail that it is no coincidence."""
        index = self._indexes[nodeid]
        if self._session.items[index].get_closest_marker("again_alone") is None or index in self._again:
            return False
        if len(self._again) == MOST_AGAIN:
            return False
        self._again.append(index)
        return True

    def _bury(self, worker: Worker) -> None:
        """Wait for a worker that ended. If it had tests left, it died at the first of them; a new one does the rest."""
        del self._workers[worker.connection]
        exit_code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if not worker.tests:
            return
        item = self._session.items[worker.tests.popleft()]
        how = f"exit code {exit_code}" if exit_code >= 0 else signal.Signals(-exit_code).name
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"the worker died ({how}) while it ran this test",
            when="call",
        )
        self._session.config.hook.pytest_runtest_logreport(report=report)
        self._fork(worker.number, worker.tests)


def _work(session: pytest.Session, connection: Connection, tests: Sequence[int], directory: Path) -> NoReturn:
    """The life of a worker: run what it is given until there is no more."""
    known = deque(tests)
    more = True
    exit_code = 0
    try:
        _make_independent(session.config, directory)
        session.config.pluginmanager.register(Reporter(session.config, connection))
        while known or more:
            while more and len(known) < AHEAD:
                given = connection.recv()
                more = given is not None
                known.extend(given or ())
            if known:
                item = session.items[known.popleft()]
                nextitem = session.items[known[0]] if known else None
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
                connection.send(("done", None))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        session._setupstate.teardown_exact(None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        exit_code = 1
    # only what this process has registered for its end: what the first one uses is still needed
    atexit._run_exitfuncs()
    os._exit(exit_code)


def _make_independent(config: pytest.Config, directory: Path) -> None:
    """Give a forked process what it must not share with the others: chance, directories, captured output."""
    atexit._clear()
    random.seed()
    home = directory.with_name(f"{directory.name}-home")
    home.mkdir(mode=0o700, exist_ok=True)
    os.environ["HOME"] = str(home)
    config.option.basetemp = directory
    config._tmp_path_factory = TempPathFactory.from_config(config, _ispytest=True)  # type: ignore[attr-defined]
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()


class Reporter:
    """Sends what happens in a worker to the process that deals out."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str) -> None:
        # the warning itself may be of a class that cannot be sent
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        told = warnings.WarningMessage(Warning(text), Warning, warning_message.filename, warning_message.lineno)
        values = {"warning_message": told, "when": when, "nodeid": nodeid, "location": None}
        self._connection.send(("warning", values))
