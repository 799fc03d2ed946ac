"""What a terminal shows of long work: one line that changes and is gone at the end; nothing anywhere else."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harken.cli import progress
from harken.cli.progress import Working
from harken.cli.root import run
from harken.operate.operator import Operator
from harken.operate.progress import Progress
from harken.store import History
from harken.testing import HandClock
from tests.cli.conftest import Desk
from tests.operate.operator_world import Office, opened

PATIENCE = 60.0


class Screen(io.StringIO):
    """A terminal on which one can wait for words."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._changed:
            self._changed.notify_all()
            return super().write(text)

    def wait_for(self, words: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: words in self.getvalue(), PATIENCE), self.getvalue()

    def lines(self) -> list[str]:
        """What stood on its one line, one after the other."""
        return [line.rstrip() for line in self.getvalue().split("\r")[1:]]


def terminal(monkeypatch: pytest.MonkeyPatch) -> Screen:
    # not a fixture: pytest puts its own back between the fixtures and the test
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    return screen


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes a second to be seen is seen at once."""
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.005)


def work(*reports: Progress | None, every: float = 1.0, **options: Any) -> None:
    """Work that tells of itself at each look, as long as there is something to tell."""
    clock, left = HandClock(), list(reports)

    def wait(_: float) -> bool:
        clock.advance(every)
        over = not left
        if left and (report := left.pop(0)):
            working.report(report)
        return over

    working = Working("backtest", clock=clock, wait=wait, **options)
    with working:
        pass


def part(done: int, total: int = 1_000_000, **more: Any) -> Progress:
    return Progress(done=done, total=total, **more)


def test_slow_work_has_one_line_that_changes_and_is_cleared_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    work(None, part(8_000, exact=False), part(420_000, exact=False), part(12, 40, what="events decided again"))
    assert screen.lines() == [
        "backtest: working, 1 s; Ctrl-C ends it",
        "backtest: 8,000 of about 1,000,000 events, 2 s",
        "backtest: 420,000 of about 1,000,000 events, 3 s",
        "backtest: 12 of 40 events decided again, 4 s",
        "",
        "",
    ]
    last, blank = screen.getvalue().split("\r")[-3:-1]
    assert len(blank) >= len(last.rstrip())


def test_nothing_is_said_of_work_that_is_done_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    work(part(1), part(2), part(3), every=0.3)
    assert screen.getvalue() == ""


def test_the_line_moves_with_the_time_while_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    work(None, None, None, every=0.6, away=True)
    assert screen.lines()[:-2] == ["backtest: the controller works on it, 1 s; Ctrl-C stops waiting"]
    work(None, None, away=True)
    assert screen.lines()[-3] == "backtest: the controller works on it, 2 s; Ctrl-C stops waiting"


def test_a_pipe_and_a_program_that_wants_json_get_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    work(part(1), part(2), hidden=True)
    assert screen.getvalue() == ""
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    work(part(1), part(2))
    assert pipe.getvalue() == ""


def test_a_narrow_terminal_gets_what_fits_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "20")
    work(part(420_000))
    assert screen.lines()[0] == "backtest: 420,000 o"


def test_the_line_is_cleared_before_an_error_is_told(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    with pytest.raises(KeyboardInterrupt), Working("backtest"):
        screen.wait_for("working")
        raise KeyboardInterrupt
    assert screen.lines()[-2:] == ["", ""]


def slow(office: Office, monkeypatch: pytest.MonkeyPatch, screen: Screen, words: str) -> None:
    """Every page of the history but the first is there only after the screen has these words."""
    read = office.store.history

    async def history(*args: Any, **options: Any) -> History:
        if options.get("after"):
            await asyncio.to_thread(screen.wait_for, words)
        return await read(*args, **options)

    monkeypatch.setattr(office.store, "history", history)


async def show_many(office: Office) -> None:
    await office.shows(*[office.incident(f"INC-{number}") for number in range(500)])


def test_a_backtest_of_the_store_alone_shows_how_many_events_it_has_read(
    tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = terminal(monkeypatch)

    @asynccontextmanager
    async def offline(directory: Path, *, write: bool = False) -> AsyncIterator[Operator]:
        async with opened(directory) as office:
            await show_many(office)
            slow(office, monkeypatch, screen, "backtest: 200 of about 500 events, 0 s")
            yield office.operator

    monkeypatch.setattr("harken.app.open_offline", offline)
    assert run(["--config", str(tmp_path), "triggers", "backtest", "oncall", "--last", "1h"]) == 0
    assert screen.lines()[-2:] == ["", ""]
    assert "for all 500 that were checked (100%)" in capsys.readouterr().out


async def test_a_backtest_by_a_controller_shows_that_it_is_waited_for(
    desk: Desk, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal(monkeypatch)
    await show_many(desk.office)
    slow(desk.office, monkeypatch, screen, "backtest: the controller works on it, 0 s; Ctrl-C stops waiting")
    code, out, _ = await desk.types("triggers", "backtest", "oncall", "--last", "1h")
    assert (code, screen.lines()[-2:]) == (0, ["", ""])
    assert "for all 500 that were checked (100%)" in out


async def test_with_json_a_backtest_writes_nothing_beside_its_answer(
    desk: Desk, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal(monkeypatch)
    await show_many(desk.office)
    assert (await desk.json("triggers", "backtest", "oncall", "--last", "1h"))["events"] == 500
    assert screen.getvalue() == ""
