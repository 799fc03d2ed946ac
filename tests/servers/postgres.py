"""A real PostgreSQL of our own, on loopback and in a folder that goes away with it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import asyncpg  # type: ignore[import-untyped]

from tests.servers.home import Home, free_port
from tests.servers.packages import environment, program

__all__ = ["PostgresServer"]

PASSWORD = "p@ss/wörd-of-postgres"
QUICK = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c shared_buffers=16MB -c timezone=UTC"


class PostgresServer:
    """Started by `with`; the user `harken` may do everything there. It may be stopped and started again in between."""

    user, password = "harken", PASSWORD

    def __init__(self) -> None:
        self.port = free_port()
        self._home = Home("postgres")
        self._tools = program("postgresql", "usr/lib/postgresql/*/bin/pg_ctl").parent
        self._numbers = count(1)
        self._running = False

    def __enter__(self) -> Self:
        home = self._home
        secret = home.write("password", self.password)
        words: list[str | Path] = ["--username", self.user, "--pwfile", secret, "--auth", "scram-sha-256"]
        words += ["--locale", "C", "--encoding", "UTF8", "--no-sync"]
        home.run([self._tools / "initdb", "-D", self._data, *words], self._environment)
        self.certificate, self._key = home.certificate()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._running:
            self.stop()
        self._home.remove()

    def start(self, *, tls: bool = True) -> None:
        sockets = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories={self._home.path} -p {self.port}"
        secure = f"-c ssl=on -c ssl_cert_file={self.certificate} -c ssl_key_file={self._key}" if tls else ""
        self._control("start", "-l", str(self._home.path / "log"), "-o", f"{sockets} {QUICK} {secure}")
        self._running = True

    def stop(self) -> None:
        self._control("stop", "-m", "fast")
        self._running = False

    def url(self, database: str, user: str = "", password: str = "") -> str:
        """An address with everything in it; by default that of the superuser."""
        who = f"{user or self.user}:{quote(password or self.password, safe='')}"
        return f"postgresql://{who}@127.0.0.1:{self.port}/{database}"

    async def connect(self, database: str) -> Any:
        return await asyncpg.connect(
            host="127.0.0.1", port=self.port, user=self.user, password=self.password, database=database
        )

    async def database(self) -> str:
        """The name of a new, empty database."""
        name = f"test_{next(self._numbers)}"
        connection = await self.connect("postgres")
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        return name

    @property
    def _data(self) -> Path:
        return self._home.path / "data"

    @property
    def _environment(self) -> dict[str, str]:
        return environment(self._tools / "postgres")

    def _control(self, verb: str, *words: str) -> None:
        self._home.run([self._tools / "pg_ctl", "-D", self._data, "-w", verb, *words], self._environment)
