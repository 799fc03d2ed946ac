"""A round of mutation testing: plant a small bug, run the tests that should find it, and list those that none found.

    python -m tests.mutation ingest match --count 40 --seed 1

It works on a copy of the repository, one mutant after the other. `make test` has no part in it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.downloads import cache
from tests.mutation.mutants import Mutant, lua_mutants, python_mutants

ROOT = Path(__file__).parents[2]
PROPERTY = ("tests/system/property/test_found.py", "tests/system/property/test_histories.py")
STORE = "tests/backends/test_{}.py"
TESTS: dict[str, Sequence[str]] = {
    "ingest": ("tests/ingest", *PROPERTY),
    "match": ("tests/match", "tests/ingest", *PROPERTY),
    "run": ("tests/run", *PROPERTY),
    "http": ("tests/http",),
    "backends/sqlite": (STORE.format("sqlite"), STORE.format("sqlite_file"), *PROPERTY),
    "backends/postgres": (STORE.format("postgres"), STORE.format("postgres_fleet"), STORE.format("postgres_server")),
    "backends/redis": (STORE.format("redis"), STORE.format("redis_server")),
}
"""The tests that should find a bug in a package, those that are quick first."""

DELIVERY = re.compile(
    r"(poll|commit|idle_reads|stream|webhook|dedup|decide|journal|settler|execute|worker|retry|client|guard|replies|"
    r"redirects|claims|runs|queue|leases|feeds|new_runs|resolve|ticks)\.(py|lua)$"
)
"""Files on the way of an event: their lines are chosen more often than others."""

HEAVY = ("pytest", "hypothesis", "aiohttp", "pydantic", "msgspec", "apsw", "asyncpg", "structlog", "lxml.etree")
PATIENCE = 300
QUICK_HISTORIES = (
    ("longer(__file__, 400)", "24"),
    ("deadline=None,", "deadline=None, phases=[__import__('hypothesis').Phase.generate],"),
)
"""Fewer histories, and none is made shorter: that one goes wrong is enough."""


class Planted(NamedTuple):
    path: Path
    mutant: Mutant


def all_mutants(package: str) -> Iterator[Planted]:
    for path in sorted((ROOT / "src/harken" / package).rglob("*")):
        find = {".py": python_mutants, ".lua": lua_mutants}.get(path.suffix)
        for mutant in find(path.read_text()) if find else ():
            yield Planted(path.relative_to(ROOT), mutant)


def chosen(package: str, count: int, random: Random) -> list[Planted]:
    """A sample without two mutants of one line."""
    order = sorted(all_mutants(package), key=lambda it: random.random() ** (4 if DELIVERY.search(it.path.name) else 1))
    by_line = {(it.path, it.mutant.line): it for it in reversed(order)}
    return [it for it in order if by_line[it.path, it.mutant.line] is it][:count]


def nearest_first(path: Path, tests: Sequence[str]) -> list[str]:
    """The tests with those in front that are named after the file."""
    near = [str(found.relative_to(ROOT)) for test in tests for found in (ROOT / test).glob(f"test_{path.stem}*.py")]
    return [*near, *tests]


def tested(directory: Path, tests: Sequence[str]) -> str:
    """Run the tests in a child that has the slow imports behind it; "killed", "survived" or "hung"."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(directory)
        sys.path[:0] = [str(directory / "src"), str(directory)]
        for name in [name for name in sys.modules if name.split(".")[0] in ("harken", "tests")]:
            del sys.modules[name]
        sys.dont_write_bytecode = False
        os.environ["PYTHONPATH"] = f"{directory / 'src'}:{directory}"
        quiet = os.open(directory / "pytest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--timeout=120", "--no-header"]
        os._exit(int(import_module("pytest").main([*options, *tests])))
    return _verdict(child)


def _verdict(child: int) -> str:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "killed"
        time.sleep(0.1)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


def copied(directory: Path) -> Path:
    copy = directory / "harken"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", ".git", ".mypy_cache", ".pytest_cache"))
    histories = copy / PROPERTY[1]
    for old, new in QUICK_HISTORIES:
        histories.write_text(histories.read_text().replace(old, new))
    return copy


@contextmanager
def servers_for(copy: Path) -> Iterator[None]:
    """Let the tests of the copy find the servers of this clone, which are kept by the path of a clone."""
    mark = hashlib.sha256(str(copy).encode()).hexdigest()[:12]
    link = cache().with_name(f"harken-tests-{os.getuid()}-{mark}")
    link.symlink_to(cache())
    try:
        yield
    finally:
        link.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=list(TESTS), help=f"of {', '.join(TESTS)}")
    parser.add_argument("--count", type=int, default=10, help="mutants per package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a file to append a line of JSON to for each mutant")
    parser.add_argument("--skip", type=int, default=0, help="how many of the sample to leave out")
    given = parser.parse_args()
    for name in HEAVY:
        import_module(name)
    with tempfile.TemporaryDirectory() as directory, servers_for(Path(directory, "harken")):
        copy = copied(Path(directory))
        for package in given.packages:
            if tested(copy, TESTS[package]) != "survived":
                sys.exit(f"{package}: its tests fail without a mutant\n{(copy / 'pytest.log').read_text()[-3_000:]}")
            sample = chosen(package, given.count + given.skip, Random(f"{given.seed} {package}"))[given.skip :]
            for path, mutant in sample:
                original = (copy / path).read_text()
                (copy / path).write_text(mutant.text)
                began = time.monotonic()
                verdict = tested(copy, nearest_first(path, TESTS[package]))
                (copy / path).write_text(original)
                report(given.out, path, mutant, verdict, time.monotonic() - began)


def report(out: Path | None, path: Path, mutant: Mutant, verdict: str, seconds: float) -> None:
    where = f"{path}:{mutant.line}"
    sys.stdout.write(f"{verdict:9}{where}  {mutant.what}  ({seconds:.0f} s)\n")
    sys.stdout.flush()
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps({"where": where, "what": mutant.what, "verdict": verdict}) + "\n")


if __name__ == "__main__":
    main()
