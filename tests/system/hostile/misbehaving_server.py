"""A Harken in its own process, and a server that keeps no promise."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import aiohttp

from tests.forked_harken import ForkedHarken

Process = asyncio.subprocess.Process | ForkedHarken
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]

# a machine that is busy with other tests takes many times as long; nobody waits for it without need
PATIENCE = 300.0
NOTE = "steps:\n  - {id: note, action: transform, set: {text: seen}}\n"
HOOK = "trigger: {webhook: {id: hook, scheme: none, allow_unsigned: true, id_field: id}}\n"


class Harken:
    """A running controller: its address, its process, and a terminal beside it."""

    def __init__(self, directory: Path, process: Process, url: str, env: Mapping[str, str]) -> None:
        self.directory = directory
        self.process = process
        self.url = url
        self._env = env

    @property
    def log(self) -> str:
        return (self.directory / "harken.log").read_text()

    async def types(self, *args: str) -> tuple[int, str, str]:
        return await types(self.directory, *args, env=self._env)

    async def json(self, *args: str) -> Any:
        code, out, err = await self.types(*args, "--json")
        assert code in (0, 1), err
        return json.loads(out)

    async def ask(self, path: str, body: bytes | None = None, /, **headers: str) -> tuple[int, Mapping[str, str], Any]:
        """GET the path, or POST the body there."""
        method = "GET" if body is None else "POST"
        async with aiohttp.request(method, self.url + path, data=body, headers=headers) as reply:
            return reply.status, reply.headers, json.loads(await reply.read() or b"null")

    async def hook(self, id: str) -> int:
        return (await self.ask("/webhooks/generic/hook", json.dumps({"id": id, "pad": "x" * 3000}).encode()))[0]

    async def runs(self, trigger: str) -> list[Any]:
        return list((await self.ask(f"/api/runs?trigger={trigger}&limit=500"))[2]["items"])

    def let_files_grow_to(self, size: int) -> None:
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def write(directory: Path, main: str = "store: harken.db\n", **workflows: str) -> Path:
    """Write a configuration: each workflow is its trigger, and notes something."""
    (directory / "workflows").mkdir(exist_ok=True)
    (directory / "harken.yaml").write_text(main)
    for name, trigger in workflows.items():
        (directory / "workflows" / f"{name}.yaml").write_text(f"name: {name}\n{trigger}{NOTE}")
    return directory


async def types(directory: Path, *args: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run a command line to its end; its exit code, output and errors."""
    process = await _launch(_arguments(directory, *args), env or {})
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def launched(directory: Path, *options: str, through: Sequence[str] = (), **env: str) -> AsyncIterator[Process]:
    """A controller that starts; killed at the end if it still runs. Its errors are in the log.

    `through` is a command that is given the controller's as its arguments.
    """
    with (directory / "harken.log").open("ab") as log:
        process = await _launch(_arguments(directory, "start", *options), env, log, through)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def started(directory: Path, *options: str, through: Sequence[str] = (), **env: str) -> AsyncIterator[Harken]:
    """A controller that is ready; killed at the end if it still runs."""
    async with launched(directory, "--port", "0", *options, through=through, **env) as process:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            async for line in process.stdout:
                if b"ready at" in line:
                    break
        yield Harken(directory, process, json.loads((directory / "harken.db.run.json").read_text())["url"], env)


async def _launch(
    arguments: Sequence[str], env: Mapping[str, str], log: IO[bytes] | None = None, through: Sequence[str] = ()
) -> Process:
    """Without a log, its errors are read by `communicate`."""
    whole = {**os.environ, **env}
    # what the loader or the interpreter is told as it starts, a forked one would not hear
    if not through and not any(name.startswith(("LD_", "PYTHON")) for name in env.keys() - {"PYTHONPATH"}):
        return await ForkedHarken.start(arguments, whole, stderr=log.fileno() if log else None)
    command = (*through, sys.executable, "-m", "harken.cli", *arguments)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=log or pipe, env=whole)


def _arguments(directory: Path, *args: str) -> list[str]:
    return ["--config", str(directory), *args]


async def until(check: Callable[[], Awaitable[Any]], seconds: float = PATIENCE) -> Any:
    """Wait until the check finds something, and return that."""
    async with asyncio.timeout(seconds):
        while True:
            if found := await check():
                return found
            await asyncio.sleep(0.05)


class Source:
    """Answers each path with what stands there; counts the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: dict[str, int] = {}
        self.url = ""

    @classmethod
    @asynccontextmanager
    async def serve(cls) -> AsyncIterator[Source]:
        source = cls()
        server = await asyncio.start_server(source._answer, "127.0.0.1", 0)
        source.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield source
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode().partition("?")[0]
            self.asked[path] = self.asked.get(path, 0) + 1
            await self.answers[path](writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # it hung up, as it should
        finally:
            writer.close()


def says(body: bytes, status: str = "200 OK", *headers: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return answer


def never_ends(*headers: str, piece: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join(["HTTP/1.1 200 OK", *headers]).encode() + b"\r\n\r\n")
        while True:
            writer.write(piece)
            await writer.drain()

    return answer
