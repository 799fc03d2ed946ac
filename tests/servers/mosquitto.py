"""A real Mosquitto on loopback, in a directory that is removed with it; its sessions survive a restart."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tests.downloads.debian import environment, program
from tests.servers.directory import START_SECONDS, ServerDirectory
from tests.servers.ports import free_port

__all__ = ["Mosquitto"]

USER, PASSWORD = "harken", "p@ss/wörd-of-mosquitto"
ACL = "user harken\ntopic readwrite #\ntopic deny forbidden/#\n"


class Mosquitto:
    """Started by `with`; it requires a password, and lets nobody use topics below `forbidden`.

    At `tls_port` it has a certificate that it signed itself.
    """

    user, password = USER, PASSWORD

    def __init__(self) -> None:
        self.port, self.tls_port = free_port(), free_port()
        self._directory = ServerDirectory("mosquitto")
        self._program = program("mosquitto")
        self._process: subprocess.Popen[bytes] | None = None
        self._config = self._configure()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.thaw()
            self.stop()
        self._directory.remove()

    def url(self, password: str = PASSWORD) -> str:
        return f"mqtt://{USER}:{quote(password, safe='')}@127.0.0.1:{self.port}"

    def tls_url(self) -> str:
        return self.url().replace("mqtt:", "mqtts:").replace(f":{self.port}", f":{self.tls_port}")

    def start(self) -> None:
        with (self._directory.path / "log").open("ab") as log:
            options = self._directory.options(environment(self._program))
            process: subprocess.Popen[bytes] = subprocess.Popen(
                [self._program, "-c", self._config], **options, stdout=log, stderr=log
            )
        self._process = process
        self._wait(process)

    def stop(self) -> None:
        """Let it write its sessions, and end."""
        assert self._process
        self._process.terminate()
        self._process.wait(120)
        self._process = None

    def forget(self) -> None:
        """Delete all sessions of the stopped server."""
        (self._directory.path / "mosquitto.db").unlink()

    def freeze(self) -> None:
        assert self._process
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        os.kill(self._process.pid, signal.SIGCONT)

    def _configure(self) -> Path:
        directory = self._directory
        passwords = directory.write("passwords", "")
        tool = self._program.parents[1] / "bin" / "mosquitto_passwd"
        directory.run([tool, "-b", passwords, USER, PASSWORD], environment(self._program))
        self.certificate, key = directory.certificate()
        settings = {
            "listener": f"{self.port} 127.0.0.1",
            "allow_anonymous": "false",
            "password_file": passwords,
            "acl_file": directory.write("acl", ACL),
            "persistence": "true",
            "persistence_location": f"{directory.path}/",
            # by itself it drops what is more than 1,000 messages behind
            "max_queued_messages": 0,
            "max_inflight_messages": 0,
        }
        tls = {"listener": f"{self.tls_port} 127.0.0.1", "certfile": self.certificate, "keyfile": key}
        lines = [f"{name} {value}\n" for part in (settings, tls) for name, value in part.items()]
        return directory.write("mosquitto.conf", "".join(lines))

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", self.port)):
                    return
            time.sleep(0.02)
        raise AssertionError(f"mosquitto did not start: {(self._directory.path / 'log').read_text('utf-8')[-2000:]}")
