from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from harken.clock import SystemClock
from harken.errors import Misconfigured, NeedsAttention, Refused, RetryLater
from harken.http import Client, HttpSettings
from tests.http.loopback import Server, reply, start


def certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(private + built.public_bytes(serialization.Encoding.PEM))
    return pem


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    return certificate(tmp_path)


@pytest.fixture
async def secure(pem: Path) -> AsyncIterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    made = Server()
    listening = await start(made, context)
    yield made
    listening.close()


async def test_a_certificate_nobody_vouches_for_needs_attention(client: Client, secure: Server) -> None:
    with pytest.raises(NeedsAttention, match=r"not trusted \(self-signed certificate\).*http\.ca_bundle"):
        await client.request("GET", secure.url(), allow_private=True)


async def test_a_certificate_of_the_configured_bundle_is_trusted(secure: Server, pem: Path) -> None:
    client = Client(SystemClock(), settings=HttpSettings(ca_bundle=str(pem)))
    answered = await client.request("GET", secure.url(), allow_private=True)
    await client.close()
    assert answered.status == 200


async def test_a_redirect_from_https_to_http_is_refused(secure: Server, server: Server, pem: Path) -> None:
    client = Client(SystemClock(), settings=HttpSettings(ca_bundle=str(pem)))
    secure.answer = lambda _: reply(302, Location=server.url())
    with pytest.raises(Refused, match="from https to http"):
        await client.request("GET", secure.url(), allow_private=True)
    await client.close()
    assert server.connections == 0


async def test_a_server_that_speaks_no_tls_is_retried_later(client: Client) -> None:
    async def blurt(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(400))
        writer.close()

    listening = await asyncio.start_server(blurt, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    with pytest.raises(RetryLater, match=rf"^no TLS connection could be made with 127\.0\.0\.1:{port}$"):
        await client.request("GET", f"https://127.0.0.1:{port}/", allow_private=True)
    listening.close()


async def test_a_missing_bundle_is_a_wrong_setting() -> None:
    client = Client(SystemClock(), settings=HttpSettings(ca_bundle="/nowhere.pem"))
    with pytest.raises(Misconfigured, match=r"http\.ca_bundle"):
        await client.request("GET", "https://127.0.0.1/", allow_private=True)
