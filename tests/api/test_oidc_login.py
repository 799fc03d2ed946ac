"""Login by OpenID Connect on real sockets, against a provider that can be wrong in every way."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from harken.config.settings import Oidc
from harken.http import Client
from harken.operate.oidc import Provider
from harken.store.document_kinds import SESSION
from tests.api.identity_provider import (
    CLIENT,
    SECRET,
    EllipticKey,
    IdentityProvider,
    RsaKey,
    encoded,
    identity_provider,
    part,
)
from tests.api.server import JSON, Reply, Served, serving
from tests.operate.operator_world import opened

LOCAL = "only-files-of-our-own-have-this"
ROLES = {"admins": ["platform"], "operators": ["oncall"], "viewers": ["staff"]}


@dataclass(frozen=True, kw_only=True)
class Site:
    served: Served
    there: IdentityProvider

    async def begins(self, next: str = "/runs") -> tuple[str, str]:
        """The address at the provider, and the cookie that the browser keeps."""
        reply = await self.served.send("GET", f"/auth/login?{urlencode({'next': next})}")
        assert reply.status == 303, reply.body
        return reply.headers["location"], reply.headers["set-cookie"].partition(";")[0]

    async def returns(self, answer: dict[str, str], cookie: str) -> Reply:
        across = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        return await self.served.send(
            "GET", f"/auth/callback?{urlencode(answer)}", headers={"Cookie": cookie, **across}
        )

    async def logs_in(self) -> Reply:
        address, cookie = await self.begins()
        return await self.returns(self.there.authorize(address), cookie)

    async def session(self) -> dict[str, str]:
        """The headers of a page after a login."""
        reply = await self.logs_in()
        assert reply.status == 303, reply.body
        cookies = reply.headers["set-cookie"]
        found = next(
            one for one in cookies.split(", ") if one.startswith("harken_session=") or "harken_session=" in one
        )
        return {"Cookie": "harken_session=" + found.partition("harken_session=")[2].partition(";")[0]}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with opened(tmp_path) as office, identity_provider() as there:
        there.now = office.clock.time
        settings = Oidc.model_validate(
            {
                "issuer": there.url,
                "client_id": CLIENT,
                "client_secret": SECRET,
                "redirect_uri": "http://127.0.0.1:9091/auth/callback",
                "allow_private": True,
                **ROLES,
            }
        )
        http = Client(office.clock)
        try:
            async with serving(office, local_token=LOCAL, provider=Provider(settings, http, office.clock)) as served:
                yield Site(served=served, there=there)
        finally:
            await http.close()


async def test_a_person_logs_in_and_is_who_their_claims_say(site: Site) -> None:
    address, cookie = await site.begins("/runs?status=failed")
    asked = parse_qs(urlsplit(address).query)
    assert asked["tenant"] == ["a"]
    assert asked["scope"] == ["openid profile email"]
    reply = await site.returns(site.there.authorize(address), cookie)
    assert (reply.status, reply.headers["location"]) == (303, "/runs?status=failed")
    session = reply.headers["set-cookie"]
    assert all(word in session for word in ("HttpOnly", "SameSite=strict", "Path=/"))
    headers = await site.session()
    me = (await site.served.send("GET", "/api/me", headers=headers)).json()
    assert (me["name"], me["role"], me["way"], me["owner"]) == ("login ana@example.com", "operator", "login", "")
    [kept, _] = await site.served.office.store.documents(SESSION)
    assert headers["Cookie"].split("_", 3)[3] not in str(kept.value)


async def test_a_change_by_cookie_has_to_come_from_one_of_our_pages(site: Site) -> None:
    headers = {**await site.session(), **JSON}
    path = "/api/triggers/oncall/pause"
    ours = {"Origin": f"http://127.0.0.1:{site.served.port}"}
    statuses = [
        (await site.served.send("POST", path, b"{}", headers)).status,
        (await site.served.send("POST", path, b"{}", {**headers, "Origin": "https://evil.example"})).status,
        (await site.served.send("POST", path, b"{}", {**headers, "Sec-Fetch-Site": "same-site"})).status,
        (await site.served.send("POST", path, b"{}", {**headers, "Content-Type": "text/plain", **ours})).status,
        (await site.served.send("POST", path, b"{}", {**headers, **ours})).status,
    ]
    assert statuses == [403, 403, 403, 415, 200]
    [audited] = (await site.served.office.ask("audit.list", did="triggers.pause"))["items"]
    assert audited["who"] == "login ana@example.com"


async def test_a_session_ends_by_logout_and_by_time(site: Site) -> None:
    first, second = await site.session(), await site.session()
    ours = {"Origin": f"http://127.0.0.1:{site.served.port}", **JSON}
    assert (await site.served.send("POST", "/auth/logout", b"{}", {**first, **ours})).status == 204
    gone = await site.served.send("GET", "/api/me", headers=first)
    assert (gone.status, gone.json()["login"]) == (401, "/auth/login")
    assert (await site.served.send("GET", "/api/me", headers=second)).status == 200
    assert (await site.served.send("POST", "/api/session/end", b"{}", {**second, **ours})).status == 204
    assert (await site.served.send("GET", "/api/me", headers=second)).status == 401
    third = await site.session()
    site.served.office.clock.advance(8 * 3600 + 1)
    assert (await site.served.send("GET", "/api/me", headers=third)).status == 401
    assert [one["did"] for one in (await site.served.office.ask("audit.list", did="auth.logout"))["items"]] == [
        "auth.logout"
    ] * 2


async def test_strangers_and_who_has_no_role_are_told_where_to_go(site: Site) -> None:
    stranger = await site.served.send("GET", "/api/me")
    assert (stranger.status, stranger.json()["login"]) == (401, "/auth/login")
    site.there.claims = {"groups": ["visitors"]}
    refused = await site.logs_in()
    assert (refused.status, "set-cookie" in refused.headers) == (403, False)
    assert "may not use this installation" in refused.json()["detail"]
    assert await site.served.office.store.documents(SESSION) == []


@pytest.mark.parametrize(
    ("groups", "role"), [(["staff", "platform"], "admin"), ("staff", "viewer"), (["oncall", "staff"], "operator")]
)
async def test_the_highest_role_of_the_claim_counts(site: Site, groups: Any, role: str) -> None:
    site.there.claims = {"groups": groups}
    assert (await site.served.send("GET", "/api/me", headers=await site.session())).json()["role"] == role


WRONG: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "stolen"},
    "no nonce": {"nonce": None},
    "another audience": {"aud": "somebody"},
    "many audiences without a party": {"aud": [CLIENT, "somebody"]},
    "another party": {"azp": "somebody"},
    "another issuer": {"iss": "https://evil.example"},
    "expired": {"exp": 1.0},
    "no expiry": {"exp": None},
    "an expiry that is a text": {"exp": "9999999999"},
    "from the future": {"iat": 4e9, "exp": 5e9},
    "nobody": {"sub": ""},
}


@pytest.mark.parametrize("how", WRONG)
async def test_claims_that_prove_nothing_log_nobody_in(site: Site, how: str) -> None:
    site.there.claims = WRONG[how]
    reply = await site.logs_in()
    assert (reply.status, "set-cookie" in reply.headers) == (403, False), reply.body
    assert await site.served.office.store.documents(SESSION) == []


def forged(site: Site, how: str) -> Any:
    there, key = site.there, site.there.keys[0]
    public = key.public()

    def unsigned(claims: dict[str, Any]) -> str:
        return f"{part({'alg': 'none'})}.{part(claims)}."

    def with_public_key(claims: dict[str, Any]) -> str:
        signed = f"{part({'alg': 'HS256', 'kid': key.kid})}.{part(claims)}"
        return f"{signed}.{encoded(hmac.new(public['n'].encode(), signed.encode(), hashlib.sha256).digest())}"

    def by_another_key(claims: dict[str, Any]) -> str:
        other = RsaKey(key.kid)
        signed = f"{part({'alg': 'RS256', 'kid': key.kid})}.{part(claims)}"
        return f"{signed}.{encoded(other.sign(signed.encode()))}"

    def key_in_header(claims: dict[str, Any]) -> str:
        other = RsaKey("mine")
        signed = f"{part({'alg': 'RS256', 'jwk': other.public(), 'kid': 'mine'})}.{part(claims)}"
        return f"{signed}.{encoded(other.sign(signed.encode()))}"

    def changed_claims(claims: dict[str, Any]) -> str:
        whole = IdentityProvider.id_token(_honest(there), claims).split(".")
        return f"{whole[0]}.{part({**claims, 'groups': ['platform']})}.{whole[2]}"

    def another_algorithm(claims: dict[str, Any]) -> str:
        signed = f"{part({'alg': 'ES256', 'kid': key.kid})}.{part(claims)}"
        return f"{signed}.{encoded(key.sign(signed.encode()))}"

    def nonsense(claims: dict[str, Any]) -> str:
        return "ü.é.x"

    return locals()[how]


def _honest(there: IdentityProvider) -> IdentityProvider:
    honest = IdentityProvider()
    honest.keys = there.keys
    return honest


@pytest.mark.parametrize(
    "how",
    [
        "unsigned",
        "with_public_key",
        "by_another_key",
        "key_in_header",
        "changed_claims",
        "another_algorithm",
        "nonsense",
    ],
)
async def test_signatures_that_prove_nothing_log_nobody_in(site: Site, how: str) -> None:
    site.there.token = forged(site, how)
    reply = await site.logs_in()
    assert (reply.status, "set-cookie" in reply.headers) == (403, False), reply.body
    assert await site.served.office.store.documents(SESSION) == []


async def test_keys_that_are_changed_are_found_and_old_ones_are_not_believed(site: Site) -> None:
    await site.session()
    old = site.there.keys[0]
    site.there.keys = [EllipticKey("two")]
    site.served.office.clock.advance(31)
    await site.session()
    assert site.there.fetched == ["description", "keys", "keys"]

    def by_the_old_key(claims: dict[str, Any]) -> str:
        signed = f"{part({'alg': old.algorithm, 'kid': old.kid})}.{part(claims)}"
        return f"{signed}.{encoded(old.sign(signed.encode()))}"

    site.there.token = by_the_old_key
    for _ in range(3):
        assert (await site.logs_in()).status == 403
    assert site.there.fetched == ["description", "keys", "keys"], "strangers do not make us ask again and again"


async def test_an_answer_counts_only_in_the_browser_that_asked_and_once(site: Site) -> None:
    address, cookie = await site.begins()
    answer = site.there.authorize(address)
    _, other = await site.begins()
    refused = [
        await site.returns(answer, "a=b"),
        await site.returns(answer, other),
        await site.returns({**answer, "state": "guessed"}, cookie),
        await site.returns({**answer, "iss": "https://evil.example"}, cookie),
        await site.returns({"state": answer["state"], "error": "access_denied"}, cookie),
        await site.returns({"state": answer["state"]}, cookie),
        await site.returns(answer, "harken_login=bm9uc2Vuc2U="),
    ]
    assert [reply.status for reply in refused] == [400, 403, 403, 403, 403, 400, 400]
    assert (await site.returns(answer, cookie)).status == 303
    again = await site.returns(answer, cookie)
    assert (again.status, "set-cookie" in again.headers) == (403, False)
    late_address, late = await site.begins()
    site.served.office.clock.advance(601)
    assert (await site.returns(site.there.authorize(late_address), late)).status == 400


@pytest.mark.parametrize("next", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x", "/a\nb"])
async def test_a_login_leads_back_to_no_other_site(site: Site, next: str) -> None:
    address, cookie = await site.begins(next)
    assert (await site.returns(site.there.authorize(address), cookie)).headers["location"] == "/"


async def test_a_provider_that_calls_itself_otherwise_is_not_believed(site: Site) -> None:
    site.there.issuer = "https://evil.example"
    reply = await site.served.send("GET", "/auth/login")
    assert (reply.status, "calls itself otherwise" in reply.json()["detail"]) == (502, True)


async def test_a_made_up_session_is_nobody_and_tokens_work_beside(site: Site) -> None:
    made_up = {"Cookie": f"harken_session=hks_{'0' * 16}_{'A' * 43}"}
    assert (await site.served.send("GET", "/api/me", headers=made_up)).status == 401
    assert (await site.served.send("GET", "/health", headers=made_up)).status == 200
    as_token = {"Authorization": f"Bearer {(await site.session())['Cookie'].partition('=')[2]}"}
    assert (await site.served.send("GET", "/api/me", headers=as_token)).status == 401
    local = {"Authorization": f"Bearer {LOCAL}", **made_up}
    assert (await site.served.send("GET", "/api/me", headers=local)).json()["way"] == "local"


def test_an_owner_is_named_by_a_claim_and_settings_that_let_nobody_in_are_refused() -> None:
    base = {"issuer": "https://id.example.com", "client_id": "h", "redirect_uri": "https://h.example.com/auth/callback"}
    given = Oidc.model_validate({**base, **ROLES, "owner_claim": "name", "role_claim": "realm.roles"})
    provider = Provider(given, None, None)  # type: ignore[arg-type]
    found = provider._identify({"sub": "u", "name": "ana", "realm": {"roles": ["oncall"]}})
    boss = provider._identify({"sub": "u", "name": "bob", "realm": {"roles": ["platform"]}})
    assert (found.role, found.owner, boss.role, boss.owner) == ("operator", "ana", "admin", "")
    for wrong in (
        {},
        {**ROLES, "issuer": "http://id.example.com"},
        {**ROLES, "redirect_uri": "https://h.example.com/elsewhere"},
        {**ROLES, "redirect_uri": "nonsense"},
    ):
        with pytest.raises(ValueError, match="Value error"):
            Oidc.model_validate({**base, **wrong})
