"""Data and errors without our own tokens, and ordinary words left alone."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from harken.errors import NeedsAttention
from harken.http.known_secret_redaction import hide_tokens, redact_error, restore_tokens, scrub, scrub_bytes

TOKEN = "tok3n-5ecret-abcdef"


def test_an_error_loses_the_secrets_in_all_its_words() -> None:
    error = redact_error(NeedsAttention(f"bad {TOKEN}", fix=f"not {TOKEN}"), [TOKEN])
    assert (str(error), error.args, repr(error)) == ("bad ***. not ***", ("bad ***",), "NeedsAttention('bad ***')")


def test_data_loses_a_token_at_any_depth_and_keeps_everything_else() -> None:
    basic = base64.b64encode(f"ada@example.org:{TOKEN}".encode()).decode()
    data: dict[str, Any] = {"key": "PRJ-1", "n": 1, "list": [TOKEN, {"auth": basic}], TOKEN: None, "ok": True}
    found = scrub(data, [TOKEN])
    assert (found["key"], found["n"], found["ok"], found["***"]) == ("PRJ-1", 1, True, None)
    assert found["list"][0] == "***"
    assert TOKEN not in str(found)
    assert basic not in str(found)
    assert data["list"][0] == TOKEN


@pytest.mark.parametrize("secret", ["PRJ-1", "password", "key", "production-team", "12345678901"])
def test_a_secret_that_may_be_a_word_does_not_change_data(secret: str) -> None:
    data = {"key": secret, "text": f"the {secret} again"}
    assert scrub(data, [secret]) == data
    assert scrub_bytes(secret.encode(), [secret]) == secret.encode()


def test_bytes_lose_a_token_in_every_form() -> None:
    body = b'{"a":"' + TOKEN.encode() + b'","b":"' + base64.b64encode(TOKEN.encode()) + b'"}'
    assert scrub_bytes(body, [TOKEN]).startswith(b'{"a":"***","b":"***')
    assert scrub_bytes(b"", [TOKEN]) == b""
    assert scrub_bytes(body, []) == body


def test_data_that_is_nested_very_deep_loses_a_token_too() -> None:
    data: Any = TOKEN
    for _ in range(900):
        data = [data]
    assert TOKEN not in str(msgspec.json.encode(scrub(data, [TOKEN])))


def test_a_stand_in_is_turned_back_by_who_knows_the_token() -> None:
    cursor = {"at": f"https://x.example/?a={quote(TOKEN + '/+', safe='')}", "n": [1, None, TOKEN + "/+"]}
    veiled = hide_tokens(cursor, [TOKEN + "/+", "an0ther-one-12345"])
    assert TOKEN not in str(veiled)
    assert restore_tokens(veiled, ["an0ther-one-12345", TOKEN + "/+"]) == cursor
    with pytest.raises(LookupError):
        restore_tokens(veiled, ["an0ther-one-12345"])
