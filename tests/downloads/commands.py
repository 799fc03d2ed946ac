"""Commands that download or build something, within a time limit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.downloads import NotBrought

__all__ = ["run"]

SECONDS = 900


def run(words: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run it to its end and return what it printed; NotBrought with its last line when it fails."""
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotBrought(f"{words[0]} took more than {SECONDS} s") from None
    except OSError as error:
        raise NotBrought(f"{words[0]} cannot be started: {error.strerror}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NotBrought(lines[-1] if lines else f"{words[0]} failed and printed nothing")
    return done.stdout
