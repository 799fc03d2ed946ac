"""What every test server needs: a directory that its user owns, a certificate for loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.downloads.debian import program
from tests.memory_files import in_memory

__all__ = ["START_SECONDS", "ServerDirectory"]

START_SECONDS = 500.0
"""A server may take this long on a busy machine; one that fails says so at once."""


class ServerDirectory:
    """A temporary directory, on a disk with `durable` and else in memory.

    Database servers refuse to run as root: then `nobody` runs them and owns the directory. They also refuse a user who
    has no name, as in many containers: then they are told one.
    """

    def __init__(self, name: str, *, durable: bool = True) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"harken-{name}-", dir=None if durable else in_memory()))
        self.user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        self.own(self.path)
        self._name = {} if self.user or _has_a_name() else self._told_name()

    def own(self, *paths: Path) -> None:
        """Make the server's user the owner."""
        for path in paths:
            if self.user:
                os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def write(self, name: str, text: str) -> Path:
        """Write a file that only the server's user can read."""
        path = self.path / name
        path.touch(mode=0o600)
        path.write_text(text, "utf-8")
        self.own(path)
        return path

    def run(self, command: Sequence[str | Path], env: Mapping[str, str], **options: Any) -> None:
        """Run a command as the server's user and wait for it. Raise AssertionError if it fails."""
        done = subprocess.run(
            list(command),
            **self.options(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=START_SECONDS,
            check=False,
            **options,
        )
        assert not done.returncode, f"{command[0]} failed: {done.stdout.decode(errors='replace')[-2000:]}"

    def options(self, env: Mapping[str, str]) -> dict[str, Any]:
        """The arguments of `subprocess` that run a command as the server's user."""
        user = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}
        return {"env": {**env, **self._name}, "cwd": self.path, **user}

    def _told_name(self) -> dict[str, str]:
        user = self.write("passwd", f"tests:x:{os.getuid()}:{os.getgid()}::{self.path}:/bin/sh\n")
        group = self.write("group", f"tests:x:{os.getgid()}:\n")
        library = str(program("libnss-wrapper"))
        return {"LD_PRELOAD": library, "NSS_WRAPPER_PASSWD": str(user), "NSS_WRAPPER_GROUP": str(group)}

    def certificate(self) -> tuple[Path, Path]:
        """A self-signed certificate for 127.0.0.1, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "harken tests")])
        now = datetime.now(UTC)
        signed = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = signed.public_bytes(serialization.Encoding.PEM)
        return self.write("server.crt", certificate.decode()), self.write("server.key", private.decode())

    def remove(self) -> None:
        shutil.rmtree(self.path)


def _has_a_name() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True
