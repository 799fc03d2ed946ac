"""A real RabbitMQ on loopback, in a directory that is removed with it.

Its scripts have the paths of an installed Erlang in them, so the virtual machine is started without them.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from tests.downloads.debian import environment, program
from tests.servers.directory import START_SECONDS, ServerDirectory
from tests.servers.ports import free_port

__all__ = ["RabbitServer"]

NODE = "rabbit@localhost"


class RabbitServer:
    """Started by `with`, with the user `guest`; its data survives a restart."""

    password = "guest"

    def __init__(self) -> None:
        self.port, self.tls_port = free_port(), free_port()
        self._names_port = free_port()
        self._directory = ServerDirectory("rabbitmq")
        self.certificate, self._key = self._directory.certificate()
        script = program("rabbitmq-server")
        self._home = script.parents[1]
        self._erlang = script.parents[4] / "erlang"
        self._environment = self._settings(environment(script))
        self._process: subprocess.Popen[bytes] | None = None
        self._names: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        options = self._directory.options(self._environment)
        # Erlang finds nodes by a server of names; this one is ours, and ends with us
        names: list[str | Path] = [self._bin() / "epmd", "-port", str(self._names_port), "-address", "127.0.0.1"]
        self._names = subprocess.Popen(names, **options, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.stop()
        assert self._names
        self._names.terminate()
        self._names.wait(120)
        self._directory.remove()

    @property
    def url(self) -> str:
        return f"amqp://guest:{self.password}@127.0.0.1:{self.port}/"

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        tls = f"ssl_options.certfile = {self.certificate}\nssl_options.keyfile = {self._key}\n"
        listen = f"listeners.ssl.default = 127.0.0.1:{self.tls_port}\nloopback_users = none\n"
        self._directory.write("rabbitmq.conf", f"{listen}{tls}vm_memory_high_watermark.relative = 0.9\n")
        boot = ["-noinput", "-s", "rabbit", "boot", "-boot", str(self._erlang / "bin/start_sasl"), "+W", "w"]
        quiet = ["+S", "1", "+sbwt", "none", "-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false"]
        command: list[str | Path] = [
            self._bin() / "erlexec",
            *boot,
            *quiet,
            "-kernel",
            "prevent_overlapping_partitions",
            "false",
        ]
        with (self._directory.path / "log").open("ab") as log:
            options = self._directory.options(self._environment)
            self._process = subprocess.Popen(command, **options, stdout=log, stderr=log)
        self._wait(self._process)

    def stop(self) -> None:
        assert self._process
        self.thaw()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(120)
        self._process = None

    def freeze(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def ask(self, expression: str) -> str:
        """Evaluate an expression of Erlang in the server."""
        cookie = (self._directory.path / ".erlang.cookie").read_text()
        command: list[str | Path] = [self._bin() / "erl_call", "-c", cookie, "-n", NODE, "-e"]
        options = self._directory.options(self._environment)
        done = subprocess.run(
            command, **options, input=f"{expression}\n".encode(), capture_output=True, timeout=200, check=True
        )
        answer: bytes = done.stdout
        return answer.decode()

    def _bin(self) -> Path:
        return sorted(self._erlang.glob("erts-*/bin"))[-1]

    def _settings(self, base: dict[str, str]) -> dict[str, str]:
        here = self._directory.path
        erlang = {"ROOTDIR": self._erlang, "BINDIR": self._bin(), "EMU": "beam", "PROGNAME": "erl", "HOME": here}
        names = {"ERL_EPMD_PORT": self._names_port, "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_LIBS": self._home / "plugins"}
        rabbit = {
            "NODENAME": NODE,
            "NODE_PORT": self.port,
            "NODE_IP_ADDRESS": "127.0.0.1",
            "DIST_PORT": free_port(),
            "MNESIA_BASE": here / "data",
            "LOG_BASE": here,
            "LOGS": "-",
            "HOME": self._home,
            "PLUGINS_DIR": self._home / "plugins",
            "ENABLED_PLUGINS_FILE": here / "plugins",
            "CONFIG_FILE": here / "rabbitmq",
            "CONF_ENV_FILE": here / "none",
        }
        ours = {**erlang, **names, **{f"RABBITMQ_{name}": value for name, value in rabbit.items()}}
        inherited = {name: value for name, value in base.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        return {**inherited, **{name: str(value) for name, value in ours.items()}}

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 5) as probe:
                    probe.sendall(b"AMQP\x00\x00\x09\x01")
                    if probe.recv(1):
                        return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"RabbitMQ did not start: {(self._directory.path / 'log').read_text()[-2000:]}")
