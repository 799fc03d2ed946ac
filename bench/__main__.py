"""`make bench`: run the measurements, print the table, write bench-results.json."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import msgspec

from bench.figures import Figure, table
from bench.sizes import FULL, QUICK, TINY

NAMES = ("webhook", "poll", "ticks", "scale", "idle", "start")
RESULTS = Path("bench-results.json")


def main(args: Sequence[str]) -> int:
    """Measure what was asked for. The exit code is 0 whatever the figures say: they are for a person to judge."""
    asked = _parser().parse_args(args)
    names = asked.only.split(",") if asked.only else list(NAMES)
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        print(f"there is no measurement {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    sizes = TINY if asked.tiny else QUICK if asked.quick else FULL
    began = time.monotonic()
    figures: list[Figure] = []
    for name in names:
        print(f"{name}: measuring", flush=True)
        module = import_module(f"bench.{name}")
        figures += module.measure(sizes, lambda line, name=name: print(f"{name}: {line}", flush=True))
    seconds = time.monotonic() - began
    print(f"\n{table(figures)}\n\n{seconds:.0f} s; also in {RESULTS}")
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(_results(figures, seconds)), indent=2) + b"\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Harken beside its limits.")
    parser.add_argument("--only", metavar="NAMES", help=f"some of {','.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and seconds: a look, not a measurement")
    parser.add_argument("--tiny", action="store_true", help="only to see that everything runs")
    return parser


def _results(figures: Sequence[Figure], seconds: float) -> dict[str, object]:
    return {
        "at": datetime.now(UTC),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seconds": round(seconds, 1),
        "figures": figures,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
