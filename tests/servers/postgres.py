"""A real PostgreSQL on loopback, in a directory that is removed with it."""

from __future__ import annotations

import atexit
import os
import signal
import time
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import asyncpg  # type: ignore[import-untyped]

from tests.downloads.debian import environment, program
from tests.servers.directory import START_SECONDS, ServerDirectory
from tests.servers.ports import free_port

__all__ = ["PostgresServer"]

PASSWORD = "p@ss/wörd-of-postgres"
QUICK = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off"
DURABLE = "-c fsync=on -c synchronous_commit=on -c full_page_writes=on"
LOOPBACK = "127.0.0.1"
SMALL = "-c shared_buffers=16MB -c timezone=UTC"


class PostgresServer:
    """Started by `with`; the user `harken` is its superuser. It can be stopped, killed and started again in between.

    With `durable` an acknowledged commit survives a crash; `listen` are the addresses that it listens on.
    """

    user, password = "harken", PASSWORD

    def __init__(self, *, durable: bool = False, listen: str = LOOPBACK) -> None:
        self.port = free_port()
        self._settings = f"{DURABLE if durable else QUICK} {SMALL}"
        self._listen = listen
        self._directory = ServerDirectory("postgres", durable=durable)
        self._tools = program("postgresql").parent
        self._numbers = count(1)
        self._running = False

    def __enter__(self) -> Self:
        self._directory.run(["cp", "-a", _new_cluster(), self._data], os.environ)
        if self._listen != LOOPBACK:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all all scram-sha-256\n")
        self.certificate, self._key = self._directory.certificate()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._running:
            self.stop()
        self._directory.remove()

    def start(self, *, tls: bool = True) -> None:
        sockets = (
            f"-c listen_addresses='{self._listen}' -c unix_socket_directories={self._directory.path} -p {self.port}"
        )
        secure = f"-c ssl=on -c ssl_cert_file={self.certificate} -c ssl_key_file={self._key}" if tls else ""
        self._control("start", "-l", str(self._directory.path / "log"), "-o", f"{sockets} {self._settings} {secure}")
        self._running = True

    def stop(self) -> None:
        self._control("stop", "-m", "fast")
        self._running = False

    def kill(self) -> None:
        """Kill all processes of the server, so that nothing more is written, as in a crash."""
        main = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(main, signal.SIGSTOP)
        processes = [*_children(main), main]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        # also wait for zombies: while a process id is in use, the server does not start again
        while any(Path(f"/proc/{process}").exists() for process in processes):
            time.sleep(0.02)
        self._running = False

    def url(self, database: str, user: str = "", password: str = "") -> str:
        """A URL with user and password, by default those of the superuser."""
        credentials = f"{user or self.user}:{quote(password or self.password, safe='')}"
        return f"postgresql://{credentials}@127.0.0.1:{self.port}/{database}"

    async def connect(self, database: str) -> Any:
        return await asyncpg.connect(
            host="127.0.0.1", port=self.port, user=self.user, password=self.password, database=database
        )

    async def database(self) -> str:
        """Create an empty database and return its name."""
        name = f"test_{next(self._numbers)}"
        connection = await self.connect("postgres")
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        return name

    @property
    def _data(self) -> Path:
        return self._directory.path / "data"

    def _control(self, verb: str, *words: str) -> None:
        patience = ["-w", "-t", f"{START_SECONDS:.0f}"]
        command: list[str | Path] = [self._tools / "pg_ctl", "-D", self._data, *patience, verb, *words]
        self._directory.run(command, environment(self._tools / "postgres"))


@cache
def _new_cluster() -> Path:
    """What initdb makes, once in this process: a server starts with a copy, which is made more quickly."""
    directory, tools = ServerDirectory("postgres-new", durable=False), program("postgresql").parent
    atexit.register(directory.remove)
    made = directory.path / "data"
    options: list[str | Path] = ["--username", PostgresServer.user, "--pwfile", directory.write("password", PASSWORD)]
    options += ["--auth", "scram-sha-256", "--locale", "C", "--encoding", "UTF8", "--no-sync"]
    directory.run([tools / "initdb", "-D", made, *options], environment(tools / "postgres"))
    return made


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # the program's name is in brackets and can hold anything, so read what follows the last bracket
            if int(status.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(status.parent.name))
    return found
