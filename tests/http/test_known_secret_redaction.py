from __future__ import annotations

import base64
from urllib.parse import quote, quote_plus

import pytest

from harken.http import redact

SECRET = "s3cr/et+key=ü &x"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_a_secret_is_taken_out_in_every_form(form: str) -> None:
    redacted = redact(f"GET /x?t={form}&a=1 failed", [SECRET, "another"])
    assert form not in redacted
    assert redacted.startswith("GET /x?t=***")
    assert redacted.endswith(" failed")


@pytest.mark.parametrize("user", ["a", "ab", "abc", "somebody@example.org"])
def test_a_secret_inside_basic_auth_is_taken_out(user: str) -> None:
    header = base64.b64encode(f"{user}:averylongtoken12345".encode()).decode()
    inner = redact(header, ["averylongtoken12345"]).replace("***", "")
    assert len(inner) < len(header) - 20


def test_text_without_secrets_stays_as_it_is() -> None:
    assert redact("key ABC-1 of project abc", ["", "x", "abc", "token-123"]) == "key ABC-1 of project abc"


def test_a_secret_that_contains_another_is_taken_out_whole() -> None:
    assert redact("longsecret", ["secret", "longsecret"]) == "***"
