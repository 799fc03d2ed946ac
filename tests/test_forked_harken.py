"""A forked command line is a process like any other: its environment, output, signals and exit code are its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from harken import __version__
from tests.forked_harken import ForkedHarken

pytestmark = [pytest.mark.process, pytest.mark.worker_group("forked")]


async def test_it_prints_its_answer_and_ends_with_its_code() -> None:
    process = await ForkedHarken.start(["--version"], os.environ)
    assert await process.communicate() == (f"harken {__version__}\n".encode(), b"")
    assert process.returncode == 0


async def test_it_reads_the_environment_that_it_was_given(tmp_path: Path) -> None:
    process = await ForkedHarken.start(["config", "check"], {"HARKEN_CONFIG": str(tmp_path / "nowhere")})
    _, err = await process.communicate()
    assert process.returncode == 1
    assert b"nowhere" in err


async def test_its_errors_go_to_the_file_that_it_was_given(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = await ForkedHarken.start(["trigers"], os.environ, stderr=log.fileno())
    assert await process.wait() == 2
    assert b"Did you mean triggers?" in (tmp_path / "log").read_bytes()


async def test_it_can_be_killed_while_others_live(tmp_path: Path) -> None:
    (tmp_path / "harken.yaml").write_text("store: harken.db\n")
    options = ["--config", str(tmp_path), "start", "--port", "0"]
    with (tmp_path / "log").open("wb") as log:
        process = await ForkedHarken.start(options, os.environ, stderr=log.fileno())
    assert b"ready at" in await process.stdout.readline()
    other = await ForkedHarken.start(["--version"], os.environ)
    assert await other.wait() == 0
    assert process.returncode is None
    process.kill()
    assert await process.wait() == -signal.SIGKILL
