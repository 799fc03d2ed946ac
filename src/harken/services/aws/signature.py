"""Signature Version 4: how a request to Amazon Web Services proves who sent it.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec
from yarl import URL

__all__ = ["Credential", "sign"]

ALGORITHM = "AWS4-HMAC-SHA256"


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A key and its secret. `session_token` comes with those that are valid for some hours."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return f"<Credential {self.access_key_id}>"


def sign(
    credential: Credential,
    region: str,
    service: str,
    url: URL,
    headers: Mapping[str, str],
    body: bytes,
    at: datetime,
) -> dict[str, str]:
    """The headers with which this POST request is sent: those given, the time and the signature over all of them."""
    stamp = at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    sent = {**headers, "Host": url.host_port_subcomponent or "", "X-Amz-Date": stamp}
    if credential.session_token:
        sent["X-Amz-Security-Token"] = credential.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in sent.items()}
    names = ";".join(sorted(signed))
    request = "\n".join(
        (
            "POST",
            # the path as it is sent is encoded once more
            quote(url.raw_path or "/", safe="/~"),
            "&".join(sorted(_pair(part) for part in url.raw_query_string.split("&") if part)),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = "\n".join((ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{credential.secret_access_key}".encode()
    for part in (stamp[:8], region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    sent["Authorization"] = (
        f"{ALGORITHM} Credential={credential.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return sent


def _pair(part: str) -> str:
    name, _, value = part.partition("=")
    return f"{name}={value}"
