"""A real MariaDB on loopback, in a directory that is removed with it."""

from __future__ import annotations

import socket
import subprocess
import time
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import aiomysql  # type: ignore[import-untyped]

from tests.downloads.debian import environment, program
from tests.servers.directory import START_SECONDS, ServerDirectory
from tests.servers.ports import free_port

__all__ = ["MariaDbServer"]

PASSWORD = "p@ss/wörd-of-mariadb"
QUICK = ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"]


class MariaDbServer:
    """Started by `with`; the user `harken` is its superuser. It can be stopped and started again in between."""

    user, password = "harken", PASSWORD

    def __init__(self) -> None:
        self.port = free_port()
        self._directory = ServerDirectory("mariadb")
        self._program = program("mariadb-server-core")
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        directory = self._directory
        for part in (self._data, self._temporary):
            part.mkdir()
            directory.own(part)
        sql = directory.write("bootstrap.sql", self._bootstrap_sql())
        with sql.open("rb") as stdin:
            directory.run([*self._command, "--bootstrap"], environment(self._program), stdin=stdin)
        self.certificate, self._key = directory.certificate()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.stop()
        self._directory.remove()

    def start(self, *, tls: bool = True) -> None:
        options = ["--bind-address=127.0.0.1", f"--port={self.port}", *QUICK]
        secure = [f"--ssl-cert={self.certificate}", f"--ssl-key={self._key}"] if tls else ["--skip-ssl"]
        log = (self._directory.path / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [*self._command, *options, *secure],
                **self._directory.options(environment(self._program)),
                stdout=log,
                stderr=log,
            )
        self._wait(self._process)

    def stop(self) -> None:
        assert self._process
        self._process.terminate()
        self._process.wait(120)
        self._process = None

    def url(self, database: str, user: str = "", password: str = "") -> str:
        """A URL with user and password, by default those of the superuser."""
        credentials = f"{user or self.user}:{quote(password or self.password, safe='')}"
        return f"mariadb://{credentials}@127.0.0.1:{self.port}/{database}"

    async def connect(self, database: str) -> Any:
        # the library encodes the password as Latin-1, and the server compares UTF-8
        password = self.password.encode().decode("latin-1")
        return await aiomysql.connect(
            host="127.0.0.1", port=self.port, user=self.user, password=password, db=database, autocommit=True
        )

    async def database(self) -> str:
        """Create an empty database and return its name."""
        name = f"test_{next(self._numbers)}"
        connection = await self.connect("mysql")
        await connection.query(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        await connection.ensure_closed()
        return name

    @property
    def _data(self) -> Path:
        return self._directory.path / "data"

    @property
    def _temporary(self) -> Path:
        """Its own: a MariaDB that starts removes the temporary tables of every other one in the same directory."""
        return self._directory.path / "tmp"

    @property
    def _command(self) -> list[str]:
        root = self._program.parents[1]
        paths = [f"--basedir={root}", f"--datadir={self._data}", f"--tmpdir={self._temporary}"]
        control = [f"--socket={self._directory.path}/socket", f"--pid-file={self._directory.path}/pid"]
        return [str(self._program), "--no-defaults", *paths, *control]

    def _bootstrap_sql(self) -> str:
        """Turns an empty directory into a database with one user."""
        share = self._program.parents[1] / "share" / "mysql"
        tables = [(share / f"mysql_system_tables{part}.sql").read_text("utf-8") for part in ("", "_data")]
        user = f"GRANT ALL ON *.* TO 'harken'@'127.0.0.1' IDENTIFIED BY '{self.password}' WITH GRANT OPTION;\n"
        return "\n".join(["CREATE DATABASE mysql;", "USE mysql;", *tables, "FLUSH PRIVILEGES;", user])

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                    probe.settimeout(5)
                    assert probe.recv(5)
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"mariadbd did not start: {(self._directory.path / 'log').read_text('utf-8')[-2000:]}")
