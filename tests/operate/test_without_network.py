"""A dry replay and a backtest make no outside call: in a network namespace without routes, where each try is fatal.

Where namespaces are forbidden, only the guard against tries is left, and the test says so by its name.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.operate.without_network import REACHED_OUT

ROOT = Path(__file__).parents[2]
UNSHARE = ["unshare", "--map-root-user", "--net"]


def _allowed() -> bool:
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


WAYS = {"in a namespace without routes": UNSHARE} if _allowed() else {"by the guard alone": []}


def program(prefix: list[str], directory: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, "-m", "tests.operate.without_network", str(directory), *more]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.parametrize("way", WAYS)
def test_nobody_is_reached_by_a_dry_replay_and_a_backtest(tmp_path: Path, way: str) -> None:
    done = program(WAYS[way], tmp_path)
    assert done.returncode == 0, done.stderr[-2_000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert (answer["replayed"], answer["tested"] > 0) == (2, True)
    assert not WAYS[way] or answer["interfaces"] == ["lo"]


@pytest.mark.parametrize("way", WAYS)
def test_a_try_to_reach_somebody_would_be_found(tmp_path: Path, way: str) -> None:
    assert program(WAYS[way], tmp_path, "reach out").returncode == REACHED_OUT
