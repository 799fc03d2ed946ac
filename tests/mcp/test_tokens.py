"""Agents with tokens: whose tools they get, what a viewer may do, and whom the audit log names."""

from __future__ import annotations

from tests.mcp.world import House, refusal


async def bearer(home: House, name: str, **scope: str) -> dict[str, str]:
    made = await home.app.operator.call("tokens.create", name=name, **scope)
    return {"Authorization": f"Bearer {made['token']}"}


async def test_the_token_of_an_owner_is_that_of_the_agent_of_this_name_alone(home: House) -> None:
    ana = await bearer(home, "a", role="operator", owner="ana")
    _, own = await home.call("/mcp/ana", "pollers_list", **ana)
    _, unnamed = await home.call("/mcp", "pollers_list", **ana)
    for answer in (own, unnamed):
        items = answer["result"]["structuredContent"]["items"]
        assert {row["id"] for row in items} == {"mail", "news", "orders"}
    assert (await home.call("/mcp/bob", "pollers_list", **ana))[0] == 404
    await home.call("/mcp/ana", "pollers_pause", {"id": "news"}, **ana)
    assert (await home.audit())[0] == ("ana", "pollers.pause", "news")


async def test_a_viewer_pauses_nothing_and_nothing_is_audited(home: House) -> None:
    viewer = await bearer(home, "v", role="viewer")
    told = refusal(await home.call("/mcp/ana", "pollers_pause", {"id": "news"}, **viewer))
    assert told == "pollers.pause needs the role operator; this token has viewer"
    assert [did for _, did, _ in await home.audit()] == ["tokens.create"]


async def test_a_token_that_is_revoked_opens_nothing(home: House) -> None:
    ana = await bearer(home, "a", role="operator", owner="ana")
    await home.app.operator.call("tokens.revoke", id="a")
    assert (await home.call("/mcp/ana", "pollers_list", **ana))[0] == 401
