"""A program: `python replica.py DIRECTORY PORT CLAIM_SECONDS` is a Harken whose claims are as long as that."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harken.app import run
from harken.timings import Timings


def main(directory: Path, port: int, claim_seconds: float) -> None:
    timings = Timings(
        claim_seconds=claim_seconds,
        agent_grace=2.0,
        lease_seconds=6.0,
        beat=1.0,
        alive=3.0,
        worker_sleep=0.5,
        housekeeping_round=0.5,
    )
    os._exit(run(directory, port=port, timings=timings))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
