"""How much longer tests are in `make soak`: one place for all of them, and one factor over it.

A round takes about an hour on two cores; it is run before a release and after a change of the engine;
`make soak ROUNDS=10` makes ten times as many histories, kills and lives.
Only what is longer here is part of it: the other tests would do again what `make test` does.

    python -m tests.soak           # the files of a round
    python -m tests.soak --alone   # those that are run after the others, as they need the machine for themselves
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["LONGER", "ROUNDS", "SOAK", "larger", "longer", "patience"]

TESTS = Path(__file__).parent

ROUNDS = int(os.environ.get("HARKEN_SOAK") or 0)
"""How many rounds of `make soak` this is; none in `make test`."""
SOAK = ROUNDS > 0

LONGER: Mapping[str, int] = {
    "api/test_schemathesis.py": 4,
    "backends/test_postgres.py": 250,
    "backends/test_redis.py": 250,
    "backends/test_sqlite.py": 250,
    "backends/test_transfer_ring.py": 3,
    "bench/test_measurements.py": 1,
    "docs/test_site_lighthouse.py": 1,
    "language/cel/test_fast_path.py": 20,
    "operate/test_backtest_parity.py": 100,
    "operate/test_pollers_reload.py": 2,
    "services/buckets/test_s3.py": 10,
    "services/test_files.py": 10,
    "simulation/test_add_case.py": 10,
    "simulation/test_seeded_fault_simulation.py": 4,
    "simulation/test_simulate_fleet.py": 4,
    "simulation/test_simulate_tickets.py": 8,
    "system/fleet/test_away.py": 3,
    "system/fleet/test_config.py": 1,
    "system/fleet/test_fire.py": 5,
    "system/fleet/test_history.py": 1,
    "system/fleet/test_late.py": 1,
    "system/fleet/test_roles.py": 1,
    "system/fleet/test_streams.py": 1,
    "system/fleet/test_takeover.py": 1,
    "system/kill/test_forward.py": 4,
    "system/kill/test_keys.py": 1,
    "system/kill/test_kill.py": 3,
    "system/property/test_fleet.py": 5,
    "system/property/test_frozen_workers.py": 12,
    "system/property/test_gathering.py": 6,
    "system/property/test_gathering_pairs.py": 1,
    "system/property/test_histories.py": 6,
    "system/tickets/test_many.py": 3,
    "system/tickets/test_races.py": 1,
    "tickets/test_histories.py": 5,
    "tickets/test_joined.py": 5,
    "ui/test_events.py": 10,
    "ui/test_lighthouse.py": 100,
    "ui/test_load.py": 10,
}
"""How many times longer or larger than in `make test`, by file. With 1 a test only has more cases, or more stores."""

ALONE = ("docs/test_site_lighthouse.py", "ui/test_lighthouse.py")
"""What Lighthouse says of a page depends on what else the machine does."""

PATIENCE_SECONDS = 14_400


def longer(file: str, usual: int) -> int:
    """How often a test of the file repeats what it does, which is `usual` in `make test`."""
    return usual * LONGER[_name(file)] * ROUNDS if SOAK else usual


def larger(file: str, usual: int) -> int:
    """How many things a test of the file has at once, which is `usual` in `make test`: not more in several rounds."""
    return usual * LONGER[_name(file)] if SOAK else usual


def patience(usual: int) -> int:
    """The seconds after which a test is given up, which is `usual` in `make test`."""
    return PATIENCE_SECONDS * ROUNDS if SOAK else usual


def _name(file: str) -> str:
    return Path(file).relative_to(TESTS).as_posix()


if __name__ == "__main__":
    alone = sys.argv[1:] == ["--alone"]
    sys.stdout.writelines(f"tests/{file}\n" for file in LONGER if (file in ALONE) == alone)
