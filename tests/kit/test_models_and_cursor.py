"""What people write is checked, and a stored cursor is taken only by the query that wrote it."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from pydantic import SecretStr, ValidationError

from harken.kit import AccountModel, QueryModel, basic_auth, configure_hint, dump_cursor, load_cursor, one_word


class Account(AccountModel):
    token: Annotated[SecretStr, one_word("an access token")]


class Query(QueryModel):
    topic: str = ""


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    of: str = ""
    page: int = 0


def test_a_token_is_stripped_and_never_shown():
    assert Account.model_validate({"token": " abc\n"}).token.get_secret_value() == "abc"
    with pytest.raises(ValidationError, match="not an access token: it is one word") as refused:
        Account.model_validate({"token": "two words"})
    assert "two words" not in str(refused.value)


@pytest.mark.parametrize("model", [Account, Query])
def test_unknown_fields_are_refused(model: type[Account | Query]):
    with pytest.raises(ValidationError, match="Extra inputs"):
        model.model_validate({"token": "abc", "topics": "x"})


def test_the_fingerprint_changes_with_the_query():
    assert Query(topic="a").fingerprint() == Query(topic="a").fingerprint()
    assert Query(topic="a").fingerprint() != Query(topic="b").fingerprint()


def test_a_cursor_is_read_back():
    position = Position(of="q", page=3)
    assert dump_cursor(position) == {"of": "q", "page": 3}
    assert load_cursor(dump_cursor(position), Position) == position
    assert load_cursor(dump_cursor(position), Position, of="q") == position


@pytest.mark.parametrize("cursor", [None, 7, "next", {"page": "three"}, [1]])
def test_a_cursor_of_another_version_is_none(cursor: object):
    assert load_cursor(cursor, Position) is None


def test_a_cursor_of_another_query_is_none():
    assert load_cursor({"of": "q", "page": 3}, Position, of="other") is None


def test_how_to_sign_in_and_how_to_configure():
    assert basic_auth("me", "pä") == "Basic bWU6cMOk"
    assert configure_hint("github") == "harken integrations github configure"
