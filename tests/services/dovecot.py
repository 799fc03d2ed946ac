"""A real IMAP server: Dovecot on free ports of loopback, with a mailbox in a temporary directory."""

from __future__ import annotations

import imaplib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from harken.testing.fakes.smtp_server import FakeMail
from tests.downloads.debian import program
from tests.servers.directory import START_SECONDS
from tests.servers.ports import free_port

USER, PASSWORD = "ana@example.com", 'not "a" \\ real pässword'
SETTINGS = """
base_dir = {home}/run
state_dir = {home}/run
log_path = {home}/log
protocols = imap
listen = 127.0.0.1
ssl = yes
ssl_cert = <{home}/ca.pem
ssl_key = <{home}/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain
auth_failure_delay = 0
first_valid_uid = 1
mail_fsync = never
mail_location = maildir:{home}/mail
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {plain}
  }}
  inet_listener imaps {{
    port = {tls}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
passdb {{
  driver = passwd-file
  args = scheme=plain username_format=%u {home}/users
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={home}
}}
namespace inbox {{
  inbox = yes
}}
"""
BLOCKS = ("service ", "unix_listener ", "fifo_listener ", "inet_listener ", "}")


class Dovecot:
    """`imap` is a session of another mail program at the same mailbox."""

    def __init__(self, home: Path, plain: int, tls: int) -> None:
        self.home, self.plain, self.tls = home, plain, tls
        self.validity = 76

    def account(self, **more: Any) -> dict[str, Any]:
        signing = {"host": "127.0.0.1", "username": USER, "password": PASSWORD}
        return {**signing, "port": self.tls, "ca_bundle": str(self.home / "ca.pem"), **more}

    @contextmanager
    def imap(self, folder: str = "INBOX") -> Iterator[imaplib.IMAP4]:
        with imaplib.IMAP4("127.0.0.1", self.plain, timeout=60) as session:
            session.authenticate("PLAIN", lambda _: f"\0{USER}\0{PASSWORD}".encode())
            session.select(folder)
            yield session

    def receive(self, *raws: bytes, came: datetime, folder: str = "INBOX", flags: str = "") -> None:
        with self.imap() as session:
            for raw in raws:
                assert session.append(folder, flags, imaplib.Time2Internaldate(came), raw)[0] == "OK"

    def clear(self) -> None:
        """Throw all mails and folders away."""
        with self.imap() as session:
            session.uid("STORE", "1:*", "+FLAGS", "\\Deleted")
            session.expunge()
            for name in re.findall(r'"\." (.+?)\'', str(session.list()[1])):
                session.delete(name)

    def unseen(self) -> int:
        with self.imap() as session:
            return len(session.search(None, "UNSEEN")[1][0].split())

    def make(self, folder: str) -> None:
        with self.imap() as session:
            session.create(folder)

    def renumber(self) -> None:
        """Give all mails new numbers, as a server does whose index was lost."""
        box = self.home / "mail"
        for file in [*box.glob("dovecot-uid*"), *box.glob("dovecot.index*")]:
            file.unlink()
        # it would take the time in seconds, and no test waits for the next one
        self.validity += 1
        (box / "dovecot-uidlist").write_text(f"3 V{self.validity} N1 G{'0123456789abcdef' * 2}\n")
        shutil.chown(box / "dovecot-uidlist", *_owner())


def _owner() -> tuple[int, int]:
    return (65534, 65534) if os.getuid() == 0 else (os.getuid(), os.getgid())


def _as_who_starts_it(dovecot: Path) -> str:
    """Settings with which no part changes its user: only root can, and others may have no name to write there."""
    if os.getuid() == 0:
        return ""
    asked = [str(dovecot.parents[1] / "bin/doveconf"), "-a", "-c", "/dev/null", "service"]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=START_SECONDS).stdout.splitlines()
    users = (re.sub(r"^( *(?:user|group) =) \$default_.*", r"\1", line) for line in lines)
    return "".join(f"{line}\n" for line in users if line.lstrip().startswith(BLOCKS) or line.endswith(" ="))


@contextmanager
def serving() -> Iterator[Dovecot]:
    dovecot = program("dovecot-imapd")
    home = Path(tempfile.mkdtemp(prefix="harken-dovecot-"))
    home.chmod(0o755)
    plain, tls = free_port(), free_port()
    FakeMail(home)  # writes a certificate and its key there
    (home / "mail").mkdir()
    shutil.chown(home / "mail", *_owner())
    (home / "users").write_text(f"{USER}:{PASSWORD}\n")
    uid, gid = _owner()
    settings = SETTINGS.format(home=home, plain=plain, tls=tls, uid=uid, gid=gid)
    (home / "conf").write_text(f"{_as_who_starts_it(dovecot)}{settings}")
    command = [str(dovecot), "-F", "-c", str(home / "conf")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _wait(process, plain)
        yield Dovecot(home, plain, tls)
    finally:
        process.terminate()
        process.wait(timeout=60)
        shutil.rmtree(home, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    """Until it answers: a program in another process has no virtual time."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        with socket.socket() as knock:
            if knock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("Dovecot does not answer")
