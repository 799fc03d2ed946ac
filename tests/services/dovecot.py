"""A real IMAP server: Dovecot on free ports of loopback, with a mailbox in a temporary directory."""

from __future__ import annotations

import getpass
import grp
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

from harken.testing.fakes.mail import FakeMail
from tests.downloads.debian import program
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
default_internal_user = {internal}
default_internal_group = {group}
default_login_user = {login}
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
        with imaplib.IMAP4("127.0.0.1", self.plain, timeout=5) as session:
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
    me = getpass.getuser()
    internal, login, group = (
        ("dovecot", "dovenull", "dovecot") if os.getuid() == 0 else (me, me, grp.getgrgid(os.getgid()).gr_name)
    )
    names = {"internal": internal, "login": login, "group": group}
    uid, gid = _owner()
    (home / "conf").write_text(SETTINGS.format(home=home, plain=plain, tls=tls, uid=uid, gid=gid, **names))
    command = [str(dovecot), "-F", "-c", str(home / "conf")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _wait(process, plain)
        yield Dovecot(home, plain, tls)
    finally:
        process.terminate()
        process.wait(timeout=20)
        shutil.rmtree(home, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    """Until it answers: a program in another process has no virtual time."""
    for _ in range(1200):
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        with socket.socket() as knock:
            if knock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("Dovecot does not answer")
