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
from bench.measurement_sizes import FULL, QUICK, TINY, Sizes

NAMES = (
    "webhook",
    "poll",
    "streams",
    "ticks",
    "scale",
    "idle",
    "start",
    "postgres",
    "redis",
    "fleet",
    "fanout",
    "growth",
    "backtest",
    "rows",
)
PEERS = "peers"
"""Not among all of them, as it installs other tools."""
RESULTS = Path("bench-results.json")


def main(args: Sequence[str]) -> int:
    """Measure what was asked for. The exit code says whether everything ran, not whether the figures are good."""
    asked = _parser().parse_args(args)
    names = asked.only.split(",") if asked.only else [PEERS] if asked.peers else list(NAMES)
    unknown = sorted(set(names) - {*NAMES, PEERS})
    if unknown:
        print(f"there is no measurement {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    sizes = TINY if asked.tiny else QUICK if asked.quick else FULL
    began = time.monotonic()
    figures: list[Figure] = []
    failed: list[str] = []
    for name in names:
        try:
            figures += _measure(name, sizes)
        except RuntimeError as error:
            failed.append(name)
            print(f"{name}: failed: {error}", file=sys.stderr)
    seconds = time.monotonic() - began
    print(f"\n{table(figures)}\n\n{seconds:.0f} s; also in {RESULTS}")
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(_results(figures, seconds)), indent=2) + b"\n")
    return 1 if failed else 0


def _measure(name: str, sizes: Sizes) -> list[Figure]:
    def say(line: str) -> None:
        print(f"{name}: {line}", flush=True)

    say("measuring")
    measured: list[Figure] = import_module(f"bench.{name}").measure(sizes, say)
    return measured


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Harken beside its limits.")
    parser.add_argument("--only", metavar="NAMES", help=f"some of {','.join(NAMES)}")
    parser.add_argument("--peers", action="store_true", help="beside Node-RED, n8n, huey and DBOS, which are installed")
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
