"""Harken beside other tools that take webhooks: the same requests, in alternating rounds, at 16 and 64 connections.

What each of them does with a request differs, and stands in its row: who records nothing has less to do.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import Figure, Say, middle
from bench.loadgen import Load
from bench.measurement_sizes import Sizes
from bench.peer_installs import NotInstalled, npm_package, python_with
from bench.processes import ROOT, child, family_cpu_seconds
from bench.webhook import SECRET, WORKFLOW

__all__ = ["PEERS", "Peer", "Round", "figures", "measure"]

PATH = "/webhooks/generic/bench"
READY_SECONDS = 120.0
QUIET = 1.0
LEVELS = (16, 64)
NODE_RED_CHECK = f"""
const given = (msg.req.headers["x-signature-256"] || "").replace("sha256=", "");
const made = global.get("crypto").createHmac("sha256", "{SECRET}").update(msg.req.body).digest("hex");
if (given !== made) {{ msg.statusCode = 401; msg.payload = {{}}; return msg; }}
const event = JSON.parse(msg.req.body);
msg.statusCode = 202;
msg.payload = {{accepted: event.severity === "high" ? 1 : 0}};
return msg;
"""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """How a peer is started in a directory of its own; `before` are commands that prepare it."""

    words: Sequence[str]
    before: Sequence[Sequence[str]] = ()
    environment: Mapping[str, str] = {}


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """`records` is what is on the disk when it has answered. `prepare(directory, port)` writes what it reads, and says
    how it is started; it raises NotInstalled. `share`: of the requests, so many are enough to measure it."""

    name: str
    records: str
    prepare: Callable[[Path, int], Command]
    path: str = PATH
    share: float = 1.0


class Round(msgspec.Struct, frozen=True, kw_only=True):
    cpu_ms: float
    rate: float


def _harken(directory: Path, port: int) -> Command:
    directory.joinpath("harken.yaml").write_text("log: {level: warning}\n")
    directory.joinpath("workflows").mkdir()
    directory.joinpath("workflows", "bench.yaml").write_text(WORKFLOW)
    start = ("start", "--port", str(port), "--quiet")
    return Command(words=(sys.executable, "-m", "harken.cli", "--config", str(directory), *start))


def _node_red(directory: Path, port: int) -> Command:
    package = npm_package("node-red")
    flows = [
        {"id": "tab", "type": "tab", "label": "bench"},
        {"id": "in", "z": "tab", "type": "http in", "url": PATH, "method": "post", "skipBodyParsing": True,
         "wires": [["check"]]},
        {"id": "check", "z": "tab", "type": "function", "func": NODE_RED_CHECK, "outputs": 1, "wires": [["out"]]},
        {"id": "out", "z": "tab", "type": "http response", "wires": []},
    ]  # fmt: skip
    directory.joinpath("flows.json").write_text(json.dumps(flows))
    settings = 'functionGlobalContext: {crypto: require("crypto")}, logging: {console: {level: "error"}}'
    directory.joinpath("settings.js").write_text(f'module.exports = {{uiHost: "127.0.0.1", {settings}}};\n')
    options = ("-u", str(directory), "-s", str(directory / "settings.js"), "-p", str(port))
    return Command(words=(_node(), str(package / "red.js"), *options, str(directory / "flows.json")))


def _n8n(directory: Path, port: int) -> Command:
    program = str(npm_package("n8n") / "bin" / "n8n")
    workflow = {
        "id": "bench",
        "name": "bench",
        "active": True,
        "settings": {"saveDataSuccessExecution": "all"},
        "nodes": [
            {"id": "1", "name": "in", "type": "n8n-nodes-base.webhook", "typeVersion": 2, "position": [0, 0],
             "webhookId": "bench", "parameters": {"httpMethod": "POST", "path": "bench",
             "responseMode": "onReceived", "options": {"responseCode": {"values": {"responseCode": 202}}}}},
            {"id": "2", "name": "keep", "type": "n8n-nodes-base.filter", "typeVersion": 2, "position": [200, 0],
             "parameters": {"conditions": {"combinator": "and", "options": {"version": 1}, "conditions": [
                 {"id": "a", "leftValue": "={{ $json.body.severity }}", "rightValue": "high",
                  "operator": {"type": "string", "operation": "equals"}}]}}},
        ],
        "connections": {"in": {"main": [[{"node": "keep", "type": "main", "index": 0}]]}},
    }  # fmt: skip
    file = directory / "workflow.json"
    file.write_text(json.dumps([workflow]))
    environment = {
        "N8N_USER_FOLDER": str(directory),
        "N8N_PORT": str(port),
        "N8N_LISTEN_ADDRESS": "127.0.0.1",
        "N8N_DIAGNOSTICS_ENABLED": "false",
        "N8N_VERSION_NOTIFICATIONS_ENABLED": "false",
        "N8N_LOG_LEVEL": "error",
    }
    node = _node()
    before = (
        (node, program, "import:workflow", f"--input={file}"),
        (node, program, "update:workflow", "--id=bench", "--active=true"),
    )
    return Command(words=(node, program, "start"), before=before, environment=environment)


def _node() -> str:
    node = shutil.which("node")
    if node is None:
        raise NotInstalled("node is not installed here")
    return node


def _python(program: str, *packages: str) -> Callable[[Path, int], Command]:
    def prepare(directory: Path, port: int) -> Command:
        python = python_with(*packages)
        return Command(words=(str(python), str(ROOT / "bench" / program), str(directory), str(port)))

    return prepare


HARKEN = Peer(name="Harken", records="event, verdict and settled run, fsynced", prepare=_harken)
PEERS = (
    HARKEN,
    Peer(name="Node-RED", records="nothing", prepare=_node_red),
    Peer(
        name="n8n",
        records="the execution, after the answer; no signature is checked",
        prepare=_n8n,
        path="/webhook/bench",
        share=0.05,
    ),
    Peer(
        name="huey on SQLite",
        records="the task, fsynced, deleted when it ran",
        prepare=_python("peer_huey.py", "huey", "aiohttp"),
        share=0.3,
    ),
    Peer(
        name="DBOS on SQLite",
        records="the workflow with its input and end",
        prepare=_python("peer_dbos.py", "dbos", "aiohttp"),
        share=0.1,
    ),
)


def measure(sizes: Sizes, say: Say, peers: Sequence[Peer] = PEERS) -> list[Figure]:
    """CPU per webhook of the whole process, and webhooks a second."""
    taken: dict[tuple[str, int], list[Round]] = {}
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        running: list[tuple[Peer, int, int]] = []
        for peer in peers:
            say(f"{peer.name}: installing, if need be, and starting")
            try:
                running.append((peer, *stack.enter_context(_started(peer))))
            except NotInstalled as error:
                missing[peer.name] = str(error)
                say(f"{peer.name}: {error}")
        for number in range(sizes.rounds + 1):
            for connections in LEVELS:
                for peer, pid, port in running:
                    count = max(connections, int(sizes.peer_events * peer.share))
                    found = _play(peer, pid, port, f"r{number}-{connections}", count, connections)
                    say(f"round {number}, {connections} connections, {peer.name}: {found.cpu_ms:.3f} ms CPU/event, "
                        f"{found.rate:,.0f}/s")  # fmt: skip
                    # the first one warms up
                    if number:
                        taken.setdefault((peer.name, connections), []).append(found)
    return figures(peers, taken, missing)


def figures(
    peers: Sequence[Peer], taken: Mapping[tuple[str, int], Sequence[Round]], missing: Mapping[str, str]
) -> list[Figure]:
    """A row for each peer and number of connections. The ratio of CPU is to Harken's; who is missing says why."""
    rows: list[Figure] = []
    for connections in LEVELS:
        ours = taken.get((HARKEN.name, connections))
        own = middle([one.cpu_ms for one in ours]) if ours else None
        for peer in peers:
            name = f"{peer.name}, {connections} connections"
            rounds = taken.get((peer.name, connections))
            if not rounds:
                why = missing.get(peer.name, "no round ended")
                rows.append(Figure(measure=name, value=None, unit="", limit_is=f"not measured: {why}"))
                continue
            cpu, rate = middle([one.cpu_ms for one in rounds]), middle([one.rate for one in rounds])
            note, ratio = f"records {peer.records}", cpu / own if own else None
            rows.append(Figure(measure=f"{name}: CPU per webhook", value=cpu, unit="ms", limit_is=note, ratio=ratio))
            rows.append(Figure(measure=f"{name}: webhooks", value=rate, unit="/s"))
    return rows


@contextmanager
def _started(peer: Peer) -> Iterator[tuple[int, int]]:
    """The peer's process and port. Raise NotInstalled when it does not come to answer."""
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        directory, port = Path(scratch), _free_port()
        command = peer.prepare(directory, port)
        environment = {**os.environ, **command.environment}
        for words in command.before:
            _run_before(words, directory, environment)
        process = subprocess.Popen(
            command.words,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _until_taken(peer, port, process)
            yield process.pid, port
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _run_before(words: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            words,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{words[2]} took longer than five minutes") from None
    if done.returncode:
        raise NotInstalled(f"{words[2]} ended with code {done.returncode}")


def _until_taken(peer: Peer, port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until it takes a webhook: some listen long before."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _listens(port) and _send(peer, port, "ready", 1, 1)["statuses"] == {"202": 1}:
            return
        time.sleep(0.5)
    raise NotInstalled("it was installed and took no webhook")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


def _send(
    peer: Peer, port: int, batch: str, count: int, connections: int, used: Callable[[], None] = lambda: None
) -> Any:
    """Send so many, and call `used` just before."""
    load = Load(port=port, path=peer.path, secret=SECRET, batch=batch, count=count, connections=connections)
    with child("bench.loadgen") as sender:
        sender.tell(msgspec.to_builtins(load))
        sender.hear()
        used()
        sender.tell("go")
        return sender.hear()


def _play(peer: Peer, pid: int, port: int, batch: str, count: int, connections: int) -> Round:
    before: list[float] = []
    result = _send(peer, port, batch, count, connections, lambda: before.append(_cpu(pid)))
    if result["statuses"] != {"202": count}:
        raise RuntimeError(f"{peer.name} did not take every request: {result['statuses']}")
    # what is left to do after the answers counts too
    last = _cpu(pid)
    while True:
        time.sleep(QUIET)
        now = _cpu(pid)
        if now - last < 0.02 * QUIET:
            break
        last = now
    return Round(cpu_ms=(now - before[0]) * 1000 / count, rate=count / result["seconds"])


def _cpu(pid: int) -> float:
    return sum(family_cpu_seconds(pid).values())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
