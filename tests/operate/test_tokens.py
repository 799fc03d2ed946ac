"""Tokens: what is stored of them, for how long they are valid, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from harken.errors import HarkenError, Malformed, Misconfigured, NotFound, Refused, Unauthorized
from tests.operate.operator_world import Office


async def make(office: Office, name: str = "laptop", **given: Any) -> str:
    return str((await office.ask("tokens.create", name=name, **given))["token"])


async def test_a_token_is_shown_once_and_only_its_hash_is_stored(office: Office) -> None:
    token = await make(office, role="operator")
    secret = token.split("_", 2)[2]
    stored = [document.value for document in await office.store.documents("token")]
    listed = await office.ask("tokens.list")
    audited = (await office.ask("audit.list"))["items"]
    assert not any(secret in str(found) for found in (stored, listed, audited))
    assert len(stored[0]["hash"]) == 64
    assert (await office.operator.authenticate(token)).role == "operator"


async def test_a_token_ends_at_its_time(office: Office) -> None:
    token = await make(office, expires="2h")
    office.clock.advance(7_199)
    assert (await office.operator.authenticate(token)).name == "token laptop"
    office.clock.advance(1)
    with pytest.raises(Unauthorized, match="the token laptop has expired"):
        await office.operator.authenticate(token)
    assert (await office.ask("tokens.list"))["items"][0]["status"] == "expired"


async def test_after_a_rotation_both_work_for_a_while_and_then_the_new_one(office: Office) -> None:
    old = await make(office)
    new = str((await office.ask("tokens.rotate", id="laptop", keep="1h"))["token"])
    assert {(await office.operator.authenticate(token)).name for token in (old, new)} == {"token laptop"}
    office.clock.advance(3_600)
    assert (await office.operator.authenticate(new)).name == "token laptop"
    with pytest.raises(Unauthorized):
        await office.operator.authenticate(old)


async def test_a_revoked_token_is_not_valid_any_more(office: Office) -> None:
    token = await make(office)
    await office.ask("tokens.revoke", id=token.split("_")[1])
    with pytest.raises(Unauthorized, match="not valid"):
        await office.operator.authenticate(token)


@pytest.mark.parametrize("text", ["", "x", "hkn_0123456789ab_" + "A" * 43, "hkn_\u0661_x", "hkn__", "\ud800"])
async def test_what_is_no_token_of_ours_is_refused(office: Office, text: str) -> None:
    await make(office)
    with pytest.raises(Unauthorized):
        await office.operator.authenticate(text)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"role": "root"}, Misconfigured, "there is no role root"),
        ({"role": "admin", "owner": "ana"}, Misconfigured, "an admin may do everything"),
        ({"operations": ["triggers.fly"]}, NotFound, "there is no operation triggers.fly"),
        ({"triggers": ["oncal"]}, NotFound, "there is no trigger oncal. Did you mean oncall?"),
        ({"expires": "2020-01-01T00:00:00Z"}, Misconfigured, "that time is over"),
        ({"expires": "soon"}, Misconfigured, "not a duration"),
        ({"name": "a b"}, Malformed, "this cannot be the name of a token"),
        ({"owner": "../x"}, Malformed, "this cannot be the name of an owner"),
        ({"name": "laptop"}, Refused, "there is a token laptop already"),
    ],
)
async def test_a_token_that_cannot_be_meant_is_not_made(
    office: Office, given: dict[str, Any], error: type[HarkenError], said: str
) -> None:
    await make(office)
    with pytest.raises(error, match=said):
        await make(office, **{"name": "other", **given})
    assert len((await office.ask("tokens.list"))["items"]) == 1


async def test_the_audit_is_found_by_who_did_what_and_when(office: Office) -> None:
    await office.ask("triggers.pause", name="oncall", reason="lunch")
    office.clock.advance(600)
    await office.ask("triggers.resume", name="oncall")
    found = {
        "did": await office.ask("audit.list", did="triggers.pause"),
        "since": await office.ask("audit.list", since="5m"),
        "who": await office.ask("audit.list", who="nobody"),
    }
    assert {name: [one["did"] for one in page["items"]] for name, page in found.items()} == {
        "did": ["triggers.pause"],
        "since": ["triggers.resume"],
        "who": [],
    }
