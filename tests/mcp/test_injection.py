"""A model that does what a stranger's text tells it: it can create nothing, delete nothing, and stays among its own."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from harken.operate.agent_tools import JOB_TOOLS
from tests.mcp.world import House, refusal

BOBS = ("bobs-news", "bobs-mail")
ONE = ("pollers_show", "pollers_run", "pollers_pause", "pollers_resume")
TRICKS = (
    "../bobs-news", "mail/../bobs-news", "bobs-news/../mail", "mail%2f..%2fbobs-news", "mail?agent=bob", "mail#",
    "mail\x00", "mail\nbobs-news", "*", "", " bobs-news", "mail,bobs-news", "reload", "poller/bobs-news",
    "ＢＯＢＳ-news", "x" * 500_000,
)  # fmt: skip
INVENTED = (
    "pollers_create", "pollers_delete", "pollers_add", "pollers_reload", "pollers.run", "POLLERS_RUN", "pollers_run ",
    "triggers_run", "tools.call", "workflows.run", "reload", "runs.retry", "store.backup", "google.mark_read", "eval",
    "orders_../../x", "../admin/pollers/reload", "__class__", "", "x" * 100_000,
)  # fmt: skip


async def changed(home: House) -> list[tuple[str, str, str]]:
    return [row for row in await home.audit() if not row[1].startswith("config")]


async def test_a_job_of_another_agent_is_not_there(home: House) -> None:
    for tool, id in product(ONE, BOBS):
        assert f"there is no job {id}" in refusal(await home.call("/mcp/ana", tool, {"id": id}))
    assert await changed(home) == []


async def test_a_job_of_another_agent_is_not_reset_however_it_is_confirmed(home: House) -> None:
    for id in BOBS:
        told = refusal(await home.call("/mcp/ana", "pollers_reset", {"id": id, "confirm": True}))
        assert f"there is no job {id}" in told
    assert await changed(home) == []


async def test_the_words_of_a_refusal_name_none_of_the_others_jobs(home: House) -> None:
    for id in ("bobs-new", "zzz"):
        told = refusal(await home.call("/mcp/ana", "pollers_show", {"id": id}))
        assert not [name for name in BOBS if name in told]


async def test_no_trick_with_an_id_reaches_anything(home: House) -> None:
    for tool, id in product(ONE, TRICKS):
        told = refusal(await home.call("/mcp/ana", tool, {"id": id}))
        assert "cannot be called like that" in told or "there is no job" in told
        assert len(told) < 500
    assert await changed(home) == []


async def test_a_tool_that_was_not_offered_is_not_there(home: House) -> None:
    arguments = {"id": "evil", "kind": "json", "agent": "ana", "config": {"url": "http://169.254.169.254/"}}
    for name in INVENTED:
        told = refusal(await home.call("/mcp/ana", name, arguments))
        assert told.startswith("there is no tool")
        assert len(told) < 500
    assert await changed(home) == []


@pytest.mark.parametrize("extra", [{"agent": "bob"}, {"account": "google-bob"}, {"url": "http://10.0.0.1/"}])
async def test_who_it_is_and_what_it_uses_cannot_be_an_argument(home: House, extra: dict[str, str]) -> None:
    (name,) = extra
    calls: list[tuple[str, dict[str, Any]]] = [
        ("pollers_list", {}),
        ("pollers_show", {"id": "bobs-news"}),
        ("pollers_pause", {"id": "news"}),
        ("gmail_count_unread", {}),
        ("gmail_search", {"query": "is:unread"}),
    ]
    for tool, arguments in calls:
        told = refusal(await home.call("/mcp/ana", tool, {**arguments, **extra}))
        assert f"{name}: Extra inputs are not permitted" in told
    assert await changed(home) == []


async def test_a_mail_of_another_agent_is_not_found_by_its_id(home: House) -> None:
    # Gmail's ids are those of one mailbox, so the two must not begin alike
    home.ana.receive(subject="mine")
    theirs = [home.bob.receive(subject=f"secret {number}") for number in range(3)][-1]
    for tool in ("gmail_message_get", "gmail_mark_read", "gmail_mark_unread"):
        assert "there is no mail with this id" in refusal(await home.call("/mcp/ana", tool, {"id": theirs}))
    for id in ("../labels", "../../bob/messages/1", "x?format=raw", "x" * 100_000):
        assert refusal(await home.call("/mcp/ana", "gmail_message_get", {"id": id}))
    assert theirs in home.bob.unread()
    assert home.bob.fetched == {}


async def test_an_agent_without_a_job_of_a_kind_has_no_tool_of_it(home: House) -> None:
    for tool in ("gmail_count_unread", "gmail_labels_list", "orders_find_orders"):
        assert "there is no tool" in refusal(await home.call("/mcp/carl", tool, {}))


async def test_a_program_of_another_agent_is_not_even_started(home: House) -> None:
    told = refusal(await home.call("/mcp/bob", "orders_close_order", {}))
    assert told == "there is no tool orders_close_order. List the tools to see which there are"


async def test_arguments_of_a_wrong_type_are_told_so(home: House) -> None:
    wrong = (7, None, ["mail"], {"$ne": ""}, True, 1e300)
    for arguments in ({}, {"id": "mail", "force": True}, *({"id": id} for id in wrong)):
        assert "cannot be called like that" in refusal(await home.call("/mcp/ana", "pollers_pause", arguments))
    assert await changed(home) == []


async def test_arguments_that_are_no_object_are_an_error_of_the_protocol(home: House) -> None:
    for arguments in ("id=mail", ["mail"], 7, True):
        _, answer = await home.call("/mcp/ana", "pollers_pause", arguments)
        assert answer["error"]["code"] == -32602
    assert await changed(home) == []


async def test_a_flood_of_arguments_is_refused_and_the_controller_goes_on(home: House) -> None:
    deep = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001
    large = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"pad":"%b"}}' % (b"x" * 1_100_000)
    many = {f"argument_{number}": "y" * 10 for number in range(20_000)}
    assert (await home.post("/mcp/ana", deep))[0] == 400
    assert (await home.post("/mcp/ana", large))[0] == 413
    assert len(refusal(await home.call("/mcp/ana", "pollers_show", many))) < 2_000
    status, answer = await home.call("/mcp/ana", "pollers_list")
    assert (status, len(answer["result"]["structuredContent"]["items"])) == (200, 3)


async def test_no_tool_of_the_jobs_makes_or_removes_a_job(home: House) -> None:
    operations = {tool.operation for tool in JOB_TOOLS.values()}
    verbs = ("list", "show", "run", "pause", "resume", "reset")
    assert operations == {"bulk.plan", "triggers.explain", *(f"pollers.{verb}" for verb in verbs)}
    before = set(home.app.loaded.jobs)
    for name in JOB_TOOLS:
        await home.call("/mcp/ana", name, {"id": "news", "confirm": True})
    assert set(home.app.loaded.jobs) == before
