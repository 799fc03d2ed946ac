"""Cold start: from the command to ready, beside Python alone and Python with the libraries; and one with many files."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.feed_directory import lay_out
from bench.figures import Figure, Say, at_most, middle
from bench.measurement_sizes import Sizes
from bench.processes import ROOT, child, cpu_seconds, harken

__all__ = ["measure"]

PATIENCE = 60.0
HARKEN = (sys.executable, "-m", "harken.cli")


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """The configuration is what `harken init` writes, each start in a directory of its own."""
    rounds: dict[str, Callable[[], float]] = {
        "ready": _start,
        "help": lambda: _run([*HARKEN, "--help"]),
        "python": lambda: _run([sys.executable, "-c", "pass"]),
        "libraries": lambda: _run([sys.executable, "-m", "bench.imports"]),
    }
    times: dict[str, list[float]] = {name: [] for name in rounds}
    for number in range(sizes.starts):
        for name, run in rounds.items():
            times[name].append(run())
        said = ", ".join(f"{name} {found[-1]:.2f} s" for name, found in times.items())
        say(f"round {number + 1}: {said}")
    return [*_figures({name: middle(found) for name, found in times.items()}), _many_files(sizes, say)]


def _many_files(sizes: Sizes, say: Say) -> Figure:
    """CPU of a start with many workflow files, which the one before it has compiled."""
    count = sizes.start_files
    with (
        tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch,
        _bytecode(Path(scratch) / "bytecode"),
        child("bench.listing_server") as server,
    ):
        directory = Path(scratch) / "site"
        lay_out(directory, count, f"http://127.0.0.1:{int(server.line())}/etag", interval="24h")
        used: list[float] = []
        for number in range(1 + sizes.starts):
            with harken(directory) as (controller, _):
                used.append(cpu_seconds(controller.pid))
            say(f"start {number + 1} with {count:,} workflow files: {used[-1]:.2f} s of CPU")
    again = middle(used[1:])
    figure = Figure(
        measure=f"start with {count:,} workflow files: CPU", value=again, unit="s", limit=used[0],
        limit_is="the first start, which compiles them", ratio=again / used[0],
    )  # fmt: skip
    return at_most(figure, 2.0)


@contextmanager
def _bytecode(directory: Path) -> Iterator[None]:
    """Keep the bytecode of what children import, as an installed program has it, whatever is set here."""
    before = dict(os.environ)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _figures(times: dict[str, float]) -> list[Figure]:
    ready = Figure(
        measure="cold start to ready", value=times["ready"], unit="s", limit=times["libraries"],
        limit_is="importing the libraries", ratio=times["ready"] / times["libraries"],
    )  # fmt: skip
    helped = Figure(
        measure="harken --help", value=times["help"], unit="s", limit=times["python"], limit_is="python -c pass",
        ratio=times["help"] / times["python"],
    )  # fmt: skip
    return [at_most(ready, 1.5), at_most(helped, 0.2)]


def _run(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _start() -> float:
    """Seconds until /health/ready says 200."""
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        site = Path(scratch) / "site"
        subprocess.run([*HARKEN, "--config", str(site), "init"], stdout=subprocess.DEVNULL, check=True)
        port = _free_port()
        began = time.perf_counter()
        process = subprocess.Popen(
            [*HARKEN, "--config", str(site), "start", "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return _until_ready(port, process) - began
        finally:
            process.terminate()
            process.wait(60)


def _until_ready(port: int, process: subprocess.Popen[bytes]) -> float:
    deadline = time.perf_counter() + PATIENCE
    while time.perf_counter() < deadline and process.poll() is None:
        if _ready(port):
            return time.perf_counter()
        time.sleep(0.01)
    raise RuntimeError("harken start did not become ready")


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
