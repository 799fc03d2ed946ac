"""Several replicas on PostgreSQL: whether a tick or a run costs more CPU than with one, and what a crash costs."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.counting_listing import HOSTS
from bench.feed_directory import lay_out
from bench.figures import Figure, Say, at_most
from bench.measurement_sizes import Sizes
from bench.processes import Child, child, counts, cpu_seconds, family_cpu_seconds, replicas, status, until
from bench.servers import durable_postgres, new_database, postmaster
from bench.takeover import takeover

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

__all__ = ["measure"]

GROWTH = 1.1
INTERVAL = "2s"
ONE, MANY, ALONE = "one with its share of the work", "several", "one with all of the work"
SETTLE_SECONDS = 3.0


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """CPU seconds of all replicas and of the server, for each of the things that were done."""

    ours: float
    server: float
    rate: float


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """Several replicas beside one that has as much to do as each of them, and beside one that does it all."""
    with durable_postgres() as server, tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        many, feeds = sizes.fleet_replicas, sizes.fleet_feeds
        stages = {ONE: (1, feeds), MANY: (many, many * feeds), ALONE: (1, many * feeds)}
        costs = _costs(stages, sizes.fleet_seconds, server, Path(scratch), say)
        crash = takeover(sizes, server, Path(scratch) / "takeover", say) if sizes.takeover_feeds else []
        return [*_figures(costs, many), *crash]


def _costs(
    stages: dict[str, tuple[int, int]], seconds: float, server: PostgresServer, scratch: Path, say: Say
) -> dict[tuple[str, str], Cost]:
    costs: dict[tuple[str, str], Cost] = {}
    with child("bench.counting_listing") as source:
        port = int(source.line())
        addresses = [f"http://{host}:{port}" for host in HOSTS]
        for stage, (count, feeds) in stages.items():
            lay_out(scratch / stage, feeds, *addresses, interval=INTERVAL, store=new_database(server))
            with replicas(scratch / stage, count) as started:
                site = Site(server, source, [one for one, _ in started], [url for _, url in started])
                site.shared_out()
                for what in ("tick", "run"):
                    cost = costs[what, stage] = site.watch(what, seconds)
                    say(f"{stage}, {feeds} feeds: {cost.ours * 1000:.3f} ms CPU/{what} and {cost.server * 1000:.3f} "
                        f"ms of the server's, at {cost.rate:,.0f}/s")  # fmt: skip
    return costs


class Site:
    """The replicas that run now, the server they share, and the service they read."""

    def __init__(self, server: PostgresServer, source: Child, started: list[Child], urls: list[str]) -> None:
        self._postmaster = postmaster(server)
        self._source = source
        self._started = started
        self._urls = urls

    def shared_out(self) -> None:
        """Wait until each has its share of the shards."""
        share = len(HOSTS) // len(self._urls)
        until(lambda: all(len(status(url)["controller"]["shards"]) == share for url in self._urls), 60.0, "fair shares")

    def watch(self, what: str, seconds: float) -> Cost:
        """What reads cost that find nothing, or what runs cost that each read starts one of."""
        self._ask({"news": what == "run"})
        time.sleep(min(SETTLE_SECONDS, seconds))
        began, done = time.monotonic(), self._done(what)
        ours, server = self._cpu(), family_cpu_seconds(self._postmaster)
        time.sleep(seconds)
        used, later = self._cpu() - ours, family_cpu_seconds(self._postmaster)
        passed, done = time.monotonic() - began, self._done(what) - done
        if not done:
            raise RuntimeError(f"there was no {what} in {seconds:g} s")
        theirs = sum(spent - server.get(pid, 0.0) for pid, spent in later.items())
        return Cost(ours=used / done, server=theirs / done, rate=done / passed)

    def _cpu(self) -> float:
        return sum(cpu_seconds(one.pid) for one in self._started)

    def _done(self, what: str) -> int:
        return int(self._ask("reads")) if what == "tick" else counts(self._urls[0]).get("runs_done", 0)

    def _ask(self, wish: object) -> Any:
        self._source.tell(wish)
        return self._source.hear()


def _figures(costs: dict[tuple[str, str], Cost], many: int) -> list[Figure]:
    found = []
    for what in ("tick", "run"):
        more = costs[what, MANY]
        for beside in (ONE, ALONE):
            growth = _growth(f"{many} replicas: CPU per {what}", more.ours, costs[what, beside].ours, beside)
            found.append(at_most(growth, GROWTH, of="ratio"))
        found.append(
            _growth(f"{many} replicas: the server's CPU per {what}", more.server, costs[what, ONE].server, ONE)
        )
    return found


def _growth(name: str, more: float, one: float, beside: str) -> Figure:
    return Figure(
        measure=name,
        value=more * 1000,
        unit="ms",
        limit=one * 1000,
        limit_is=beside,
        ratio=more / one if one else None,
    )
