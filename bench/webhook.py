"""The webhook flow: HMAC, CEL, commit and settled no-op runs in a real `harken start`, loaded from another process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from bench.figures import Figure, Say, at_most, middle
from bench.loadgen import Load
from bench.measurement_sizes import Sizes
from bench.processes import child, counts, cpu_seconds, harken, report, until
from bench.sample_pages import PollFlow, Used

__all__ = ["measure"]

SECRET = "bench-secret-of-some-length"
WORKFLOW = f"""name: bench
trigger:
  webhook:
    id: bench
    secret: {SECRET}
    id_field: id
  condition: event.severity == "high"
steps: []
"""
QUIET = 0.3


class Round(msgspec.Struct, frozen=True, kw_only=True):
    cpu_ms: float
    rate: float


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """CPU per event, and events a second."""
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        directory = Path(scratch)
        directory.joinpath("harken.yaml").write_text("log: {level: warning}\n")
        directory.joinpath("workflows").mkdir()
        directory.joinpath("workflows", "bench.yaml").write_text(WORKFLOW)
        with harken(directory, "--quiet") as (controller, url), child("bench.bare_server") as blank:
            port, blank_port = urlsplit(url).port or 0, int(blank.line())
            sent = [0]

            def settled() -> bool:
                return counts(url).get("runs_done", 0) >= sent[0]

            flow = _Flow(sizes, port, controller.pid, settled, sent)
            server = _Flow(sizes, blank_port, blank.pid, lambda: True, [0])
            return _figures(_rounds(sizes, flow, server, say))


class _Flow:
    def __init__(self, sizes: Sizes, port: int, pid: int, settled: Callable[[], bool], sent: list[int]) -> None:
        self._sizes = sizes
        self._port = port
        self._pid = pid
        self._settled = settled
        self._sent = sent

    def play(self, batch: str, count: int) -> Round:
        load = Load(
            port=self._port,
            path="/webhooks/generic/bench",
            secret=SECRET,
            batch=batch,
            count=count,
            connections=self._sizes.connections,
        )
        with child("bench.loadgen") as sender:
            sender.tell(msgspec.to_builtins(load))
            sender.hear()
            before = cpu_seconds(self._pid)
            sender.tell("go")
            result: dict[str, Any] = sender.hear()
        time.sleep(QUIET)
        used = cpu_seconds(self._pid) - before
        if result["statuses"] != {"202": count}:
            raise RuntimeError(f"not every request was accepted: {result['statuses']}")
        self._sent[0] += count
        until(self._settled, 30.0, "runs to settle")
        return Round(cpu_ms=used * 1000 / count, rate=count / result["seconds"])


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What the rounds gave: the flow, the bare server, and the CPU in ms that bare group commit takes for an event."""

    flows: list[Round]
    servers: list[Round]
    commits: list[float]


def _rounds(sizes: Sizes, flow: _Flow, server: _Flow, say: Say) -> Taken:
    say("warming up")
    for one in (flow, server):
        one.play("warm", max(sizes.connections, sizes.webhook_events // 4))
    taken = Taken(flows=[], servers=[], commits=[])
    for number in range(sizes.rounds):
        taken.flows.append(flow.play(f"r{number}", sizes.webhook_events))
        taken.servers.append(server.play(f"r{number}", sizes.webhook_events))
        taken.commits.append(_commit(sizes))
        ours, bare, commit = taken.flows[-1], taken.servers[-1], taken.commits[-1]
        say(f"round {number + 1}: {ours.cpu_ms:.3f} ms CPU/event, {ours.rate:,.0f}/s; "
            f"bare server {bare.cpu_ms:.3f} ms, {bare.rate:,.0f}/s; bare commit {commit:.3f} ms")  # fmt: skip
    return taken


def _commit(sizes: Sizes) -> float:
    """As many waiters as connections, each with one event at a time."""
    pages = max(1, sizes.webhook_events // sizes.connections // 2)
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        asked = PollFlow(feeds=sizes.connections, pages=pages, page=1, directory=scratch)
        used = msgspec.convert(report("bench.bare_commit", msgspec.to_builtins(asked)), Used)
    return used.cpu * 1000 / asked.events


def _figures(taken: Taken) -> list[Figure]:
    cpu = middle([one.cpu_ms for one in taken.flows])
    limit = middle([one.cpu_ms for one in taken.servers]) + middle(taken.commits)
    rate, bare_rate = middle([one.rate for one in taken.flows]), middle([one.rate for one in taken.servers])
    cost = Figure(
        measure="webhook flow: CPU per event",
        value=cpu,
        unit="ms",
        limit=limit,
        limit_is="bare server + bare group commit",
        ratio=cpu / limit,
    )
    speed = Figure(
        measure="webhook flow: durable events",
        value=rate,
        unit="/s",
        limit=bare_rate,
        limit_is="bare server",
        ratio=rate / bare_rate,
    )
    return [at_most(cost, 0.12), speed]
