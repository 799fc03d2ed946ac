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
from bench.processes import child, counts, cpu_seconds, harken, until
from bench.sizes import Sizes

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
        with harken(directory) as (controller, url), child("bench.blank") as blank:
            port, blank_port = urlsplit(url).port or 0, int(blank.line())
            sent = [0]

            def settled() -> bool:
                return counts(url).get("runs_done", 0) >= sent[0]

            flow = _Flow(sizes, port, controller.pid, settled, sent)
            bare = _Flow(sizes, blank_port, blank.pid, lambda: True, [0])
            return _figures(*_rounds(sizes, flow, bare, say))


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


def _rounds(sizes: Sizes, flow: _Flow, bare: _Flow, say: Say) -> tuple[list[Round], list[Round]]:
    say("warming up")
    for one in (flow, bare):
        one.play("warm", max(sizes.connections, sizes.webhook_events // 4))
    flows: list[Round] = []
    bares: list[Round] = []
    for number in range(sizes.rounds):
        flows.append(flow.play(f"r{number}", sizes.webhook_events))
        bares.append(bare.play(f"r{number}", sizes.webhook_events))
        say(f"round {number + 1}: {flows[-1].cpu_ms:.3f} ms CPU/event, {flows[-1].rate:,.0f}/s; "
            f"bare server {bares[-1].cpu_ms:.3f} ms, {bares[-1].rate:,.0f}/s")  # fmt: skip
    return flows, bares


def _figures(flows: list[Round], bares: list[Round]) -> list[Figure]:
    cpu, bare_cpu = middle([one.cpu_ms for one in flows]), middle([one.cpu_ms for one in bares])
    rate, bare_rate = middle([one.rate for one in flows]), middle([one.rate for one in bares])
    limit_is = "uvicorn answering 202"
    cost = Figure(
        measure="webhook flow: CPU per event",
        value=cpu,
        unit="ms",
        limit=bare_cpu,
        limit_is=limit_is,
        ratio=cpu / bare_cpu if bare_cpu else None,
    )
    speed = Figure(
        measure="webhook flow: durable events", value=rate, unit="/s", limit=bare_rate, limit_is=limit_is,
        ratio=rate / bare_rate,
    )  # fmt: skip
    return [at_most(cost, 0.13), speed]
