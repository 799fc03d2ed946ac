"""A mail server on loopback, with TLS and signing in, and the mailbox behind it. It needs aiosmtpd."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["PASSWORD", "FakeMail"]

USER, PASSWORD = "ana", "fake-app-password"


class FakeMail:
    """`mails` has all accepted mails; `mailbox` what a mail program shows: each Message-ID once.

    `refusals` answers the next command of a name: {"RCPT": "550 5.1.1 nobody"}; AUTH is refused for good.
    `silent` never answers DATA.
    """

    def __init__(self, directory: Path, *, security: Literal["starttls", "ssl", "none"] = "starttls") -> None:
        self.mails: list[tuple[list[str], EmailMessage]] = []
        self.refusals: dict[str, str] = {}
        self.silent = False
        self.port = 0
        self.ca_bundle = directory / "ca.pem"
        self._security = security
        self._tls = _make_context(directory) if security != "none" else None

    def mailbox(self) -> list[EmailMessage]:
        return list({mail["Message-ID"]: mail for _, mail in self.mails}.values())

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        """Serve on a free loopback port until the block ends; yields the port."""
        wrapped = self._tls if self._security == "ssl" else None
        server = await asyncio.get_running_loop().create_server(self._protocol, "127.0.0.1", 0, ssl=wrapped)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self.port
        finally:
            server.close()

    def _protocol(self) -> SMTP:
        upgrades = self._security == "starttls"
        return SMTP(
            self,
            hostname="fake",
            authenticator=self._known,
            auth_required=upgrades,
            auth_require_tls=upgrades,
            tls_context=self._tls if upgrades else None,
            require_starttls=upgrades,
        )

    def _known(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        if "AUTH" in self.refusals:
            # keep the refusal: clients try one sign-in method after the other
            return AuthResult(success=False, handled=False, message=self.refusals["AUTH"])
        right = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=right, handled=False)

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        envelope.mail_from = address
        return self.refusals.pop("MAIL", "250 OK")

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        said = self.refusals.pop("RCPT", "250 OK")
        envelope.rcpt_tos += [address] if said.startswith("250") else []
        return said

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.silent:
            await asyncio.Event().wait()
        said = self.refusals.pop("DATA", "250 OK")
        if said.startswith("250"):
            mail = message_from_bytes(envelope.content, policy=default)
            assert isinstance(mail, EmailMessage)
            self.mails.append((list(envelope.rcpt_tos), mail))
        return said


def _make_context(directory: Path) -> ssl.SSLContext:
    """A context with a certificate that only clients with `ca.pem` trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake mail")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "ca.pem", directory / "key.pem")
    return context
