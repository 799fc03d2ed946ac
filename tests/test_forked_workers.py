"""Tests in forked workers: each runs once, a group in one worker, and a worker that dies fails one test only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).parents[1]
Run: TypeAlias = Callable[..., str]
HEAD = "import os, pathlib, signal, warnings, pytest\n"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Write a file of tests and run it in workers; gives what pytest printed."""

    def run_them(text: str, *options: str, workers: int = 3) -> str:
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\nmarkers =\n    worker_group(name): together\n    process: long\n    again_alone: twice\n"
        )
        (tmp_path / "test_them.py").write_text(HEAD + text)
        command = [sys.executable, "-m", "pytest", "-p", "tests.forked_workers", "--rootdir", str(tmp_path)]
        command += ["-c", str(tmp_path / "pytest.ini"), "--workers", str(workers), *options, str(tmp_path)]
        env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
        return done.stdout + done.stderr

    return run_them


def _last_line(printed: str) -> str:
    return re.sub(r" in .*|=", "", printed.strip().splitlines()[-1]).strip()


class TestRun:
    def test_each_test_runs_once_and_is_reported(self, run: Run, tmp_path: Path) -> None:
        printed = run(
            "@pytest.mark.parametrize('n', range(100))\n"
            "def test_n(n, tmp_path):\n"
            f"    pathlib.Path({str(tmp_path)!r}, f'ran-{{n}}').open('x').write(str(os.getpid()))\n"
            "    assert n not in (7, 70)\n"
            "    if n == 30: pytest.skip('thirty')\n"
        )

        ran = [path.read_text() for path in tmp_path.glob("ran-*")]
        assert (_last_line(printed), len(ran), len(set(ran))) == ("2 failed, 97 passed, 1 skipped", 100, 3)
        assert "assert 7 not in (7, 70)" in printed

    def test_a_group_runs_in_one_worker_and_shares_what_it_set_up(self, run: Run, tmp_path: Path) -> None:
        run(
            "@pytest.fixture(scope='session')\n"
            "def server():\n"
            f"    with pathlib.Path({str(tmp_path)!r}, 'log').open('a') as log: log.write('up ')\n"
            "    yield\n"
            f"    with pathlib.Path({str(tmp_path)!r}, 'log').open('a') as log: log.write('down')\n"
            "@pytest.mark.worker_group('one')\n"
            "@pytest.mark.parametrize('n', range(60))\n"
            "def test_n(n, server): pass\n"
            "@pytest.mark.parametrize('n', range(60))\n"
            "def test_other(n): pass\n"
        )

        assert (tmp_path / "log").read_text() == "up down"

    def test_a_worker_that_dies_fails_its_test_and_another_does_the_rest(self, run: Run) -> None:
        printed = run(
            "@pytest.mark.parametrize('n', range(40))\n"
            "def test_n(n):\n"
            "    if n == 5: os.kill(os.getpid(), signal.SIGKILL)\n"
        )

        assert _last_line(printed) == "1 failed, 39 passed"
        assert "the worker died (SIGKILL) while it ran this test" in printed

    def test_what_a_test_prints_and_warns_of_is_its_own(self, run: Run) -> None:
        printed = run(
            "@pytest.mark.parametrize('n', range(200))\n"
            "def test_n(n, capfd):\n"
            "    print(f'this is {n}')\n"
            "    os.system(f'echo and {n}')\n"
            "    assert capfd.readouterr().out.split() == ['this', 'is', str(n), 'and', str(n)]\n"
            "    if n == 9: warnings.warn('nine', stacklevel=1)\n"
        )

        assert _last_line(printed) == "200 passed, 1 warning"
        assert "UserWarning: nine" in printed

    def test_what_takes_longest_begins_first(self, run: Run, tmp_path: Path) -> None:
        run(
            f"def note(name): pathlib.Path({str(tmp_path)!r}, 'log').open('a').write(name + ' ')\n"
            "def test_short(): note('short')\n"
            "@pytest.mark.process\n"
            "def test_long(): note('long')\n"
            "@pytest.mark.process\n"
            "@pytest.mark.worker_group('many')\n"
            "@pytest.mark.parametrize('n', range(2))\n"
            "def test_group(n): note('group')\n",
            workers=1,
        )

        assert (tmp_path / "log").read_text().split() == ["group", "group", "long", "short"]

    def test_after_the_first_failure_no_more_are_dealt_out(self, run: Run) -> None:
        printed = run("@pytest.mark.parametrize('n', range(5000))\ndef test_n(n): assert n\n", "-x", workers=2)

        assert "stopping after 1 failures" in printed
        assert int(re.findall(r"(\d+) passed", printed)[-1]) < 1000


class TestAgain:
    TWICE = (
        "@pytest.mark.again_alone\n"
        "@pytest.mark.parametrize('n', range(20))\n"
        "def test_n(n):\n"
        "    if n in {failing}:\n"
        "        tries = pathlib.Path({directory!r}, f'try-{{n}}').open('a+')\n"
        "        tries.write('x'); tries.seek(0)\n"
        "        assert len(tries.read()) == {good}, 'not yet'\n"
    )

    def test_a_test_that_may_is_run_once_more_and_what_it_said_is_printed(self, run: Run, tmp_path: Path) -> None:
        printed = run(self.TWICE.format(failing=[3, 4], directory=str(tmp_path), good=2))

        assert _last_line(printed) == "20 passed, 2 again"
        assert "failed at first, and was run again: test_them.py::test_n[3]" in printed
        assert "AssertionError: not yet" in printed

    def test_one_that_fails_twice_has_failed(self, run: Run, tmp_path: Path) -> None:
        printed = run(self.TWICE.format(failing=[3], directory=str(tmp_path), good=9))

        assert (_last_line(printed), (tmp_path / "try-3").read_text()) == ("1 failed, 19 passed, 1 again", "xx")

    def test_more_than_three_are_no_coincidence(self, run: Run, tmp_path: Path) -> None:
        printed = run(self.TWICE.format(failing=[*range(5)], directory=str(tmp_path), good=2))

        assert _last_line(printed) == "2 failed, 18 passed, 3 again"

    def test_no_other_is_run_again(self, run: Run, tmp_path: Path) -> None:
        text = self.TWICE.format(failing=[3], directory=str(tmp_path), good=2)
        printed = run(text.replace("@pytest.mark.again_alone\n", ""))

        assert _last_line(printed) == "1 failed, 19 passed"
