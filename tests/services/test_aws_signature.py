"""Our signatures are those of Amazon's own library."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta
from random import Random

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from yarl import URL

from harken.services.aws.signature import Credential, sign

HOSTS = ("sqs.eu-central-1.amazonaws.com", "127.0.0.1:4566", "localhost:443", "localhost:80", "[::1]:9000")
PATHS = ("", "/", "/queue/", "/a%20b/c", "/%C3%BC", "/a~b/c-d_e.f", "/a:b@c")
QUERIES = ("", "?b=2&a=1", "?a=%20x&a=%2F", "?flag", "?a=&b")


def word(random: Random, longest: int = 60) -> str:
    return "".join(random.choices(string.printable[:94], k=random.randrange(1, longest)))


def test_a_thousand_requests_are_signed_as_botocore_signs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(15)
    for _ in range(1_000):
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=random.randrange(10**8))
        monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda at=at: at)
        key, secret, token = word(random), word(random), random.choice(["", word(random, 900)])
        region, service = random.choice(["us-east-1", "eu-central-1"]), random.choice(["sqs", "sns"])
        url = (
            f"{random.choice(['http', 'https'])}://{random.choice(HOSTS)}{random.choice(PATHS)}{random.choice(QUERIES)}"
        )
        headers = {f"X-{number}": f" {word(random)}  {word(random)} " for number in range(random.randrange(4))}
        body = random.randbytes(random.choice([0, 1, 1_000]))
        request = AWSRequest("POST", url, headers, body)
        botocore.auth.SigV4Auth(Credentials(key, secret, token or None), service, region).add_auth(request)
        credential = Credential(access_key_id=key, secret_access_key=secret, session_token=token)
        ours = sign(credential, region, service, URL(url, encoded=True), headers, body, at)
        assert ours["Authorization"] == request.headers["Authorization"], url
        assert ours["X-Amz-Date"] == request.headers["X-Amz-Date"]


def test_a_credential_does_not_show_its_secret() -> None:
    credential = Credential(access_key_id="AKIA", secret_access_key="hidden", session_token="hidden too")
    assert repr(credential) == "<Credential AKIA>"
