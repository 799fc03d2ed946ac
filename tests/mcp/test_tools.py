"""What an agent finds behind its door, and what it gets when it uses it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
import yaml

from harken.operate import agent_tools
from harken.operate.agent_tools import Offer
from harken.operate.idempotency import Answer
from harken.source import Call
from harken.store.document_kinds import REQUEST
from tests.mcp.world import House, words

JOBS = {
    "pollers_list",
    "pollers_show",
    "pollers_run",
    "pollers_pause",
    "pollers_resume",
    "pollers_reset",
    "explain",
    "bulk_plan",
}
MAIL = {
    "gmail_count_unread", "gmail_search", "gmail_message_get", "gmail_mark_read", "gmail_mark_unread",
    "gmail_labels_list",
}  # fmt: skip
ORDERS = {"orders_find_orders", "orders_close_order"}
ECHO = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    size = asked["params"].get("arguments", {}).get("size", 0)
    answers = {
        "initialize": {"name": "echo", "protocol": 1},
        "poll_tick": {"items": []},
        "poll_list_tools": {"tools": [{"name": "text"}]},
        "poll_tool_call": "x" * size,
    }
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answers.get(asked["method"])}), flush=True)
"""


async def names(home: House, agent: str) -> set[str]:
    async with home.agent(agent) as client:
        return {tool.name for tool in (await client.list_tools()).tools}


async def test_an_agent_has_the_tools_of_its_jobs_kinds_and_no_others(home: House) -> None:
    assert await names(home, "ana") == JOBS | MAIL | ORDERS
    assert await names(home, "bob") == JOBS | MAIL
    assert await names(home, "carl") == JOBS


async def test_tools_say_what_they_do_to_the_world(home: House) -> None:
    async with home.agent("ana") as client:
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    reading = {name for name, hint in hints.items() if hint and hint.read_only_hint}
    destroying = {name for name, hint in hints.items() if hint and hint.destructive_hint}
    repeatable = {name for name, hint in hints.items() if hint and hint.idempotent_hint}
    assert reading == {"pollers_list", "pollers_show", "explain", "orders_find_orders"} | MAIL - {
        "gmail_mark_read",
        "gmail_mark_unread",
    }
    assert destroying == {"pollers_reset", "gmail_mark_read", "gmail_mark_unread", "orders_close_order"}
    assert {"pollers_pause", "pollers_resume", "pollers_reset"} < repeatable
    assert "pollers_run" not in repeatable


async def test_no_tool_takes_an_address_an_agent_or_an_account(home: House) -> None:
    async with home.agent("ana") as client:
        tools = (await client.list_tools()).tools
    taken = {name for tool in tools for name in tool.input_schema["properties"]}
    assert taken == {"id", "confirm", "query", "limit", "state", "action", "where", "since", "name", "key"}


async def test_a_job_is_listed_shown_paused_resumed_and_read(home: House) -> None:
    async with home.agent("ana") as client:
        listed = (await client.call_tool("pollers_list")).structured_content
        assert [row["id"] for row in listed["items"]] == ["mail", "news", "orders"]
        paused = (await client.call_tool("pollers_pause", {"id": "news"})).structured_content
        shown = (await client.call_tool("pollers_show", {"id": "news"})).structured_content
        assert (paused["paused"], shown["paused_reason"]) == (True, "paused by the agent ana")
        refused = await client.call_tool("pollers_run", {"id": "news"})
        assert refused.is_error
        assert "job news is paused" in words(refused)
        resumed = (await client.call_tool("pollers_resume", {"id": "news"})).structured_content
        read = (await client.call_tool("pollers_run", {"id": "news"})).structured_content
        assert (resumed["paused"], read["id"], read["error"]) == (False, "news", None)
    assert [(who, did, what) for who, did, what in await home.audit() if what == "news"] == [
        ("agent ana", "pollers.run", "news"),
        ("agent ana", "pollers.resume", "news"),
        ("agent ana", "pollers.pause", "news"),
    ]


async def test_an_answer_is_structured_and_the_same_in_words(home: House) -> None:
    async with home.agent("ana") as client:
        answer = await client.call_tool("pollers_show", {"id": "news"})
    assert json.loads(words(answer)) == answer.structured_content
    assert answer.structured_content["settings"]["config"]["deliver"] == {"channel": "telegram", "to": "42"}


async def test_a_reset_has_to_be_confirmed(home: House) -> None:
    async with home.agent("ana") as client:
        for arguments in ({"id": "news"}, {"id": "news", "confirm": False}):
            refused = await client.call_tool("pollers_reset", arguments)
            assert refused.is_error
            assert "confirm" in words(refused)
        assert not [did for _, did, _ in await home.audit() if did == "pollers.reset"]
        done = await client.call_tool("pollers_reset", {"id": "news", "confirm": True})
    assert not done.is_error
    assert ("agent ana", "pollers.reset", "news") in await home.audit()


async def test_each_agent_sees_its_own_mailbox(home: House) -> None:
    mine, other = home.ana.receive(subject="for ana"), home.bob.receive(subject="for bob")
    home.bob.receive(subject="another for bob")
    async with home.agent("ana") as ana, home.agent("bob") as bob:
        assert (await ana.call_tool("gmail_count_unread")).structured_content["unread"] == 1
        assert (await bob.call_tool("gmail_count_unread")).structured_content["unread"] == 2
        found = (await ana.call_tool("gmail_search", {"query": "is:unread"})).structured_content
        assert [mail["subject"] for mail in found["messages"]] == ["for ana"]
        marked = await ana.call_tool("gmail_mark_read", {"id": mine})
        assert not marked.is_error
    assert home.ana.unread() == []
    assert other in home.bob.unread()
    assert ("agent ana", "tools.call", "gmail_mark_read") in await home.audit()


async def test_the_tools_of_a_program_are_called_by_the_jobs_name(home: House) -> None:
    async with home.agent("ana") as client:
        answer = (await client.call_tool("orders_find_orders", {"state": "open"})).structured_content
        refused = await client.call_tool("orders_find_orders", {"state": "open", "url": "http://10.0.0.1/"})
    assert answer["called"] == {"name": "find orders", "arguments": {"state": "open"}}
    assert refused.is_error
    assert "url: Extra inputs are not permitted" in words(refused)


async def test_a_program_that_cannot_say_what_it_offers_takes_no_other_tool_away(home: House) -> None:
    home.tools[:] = [{"nameless": True}]
    home.write()
    await home.app.operator.call("reload")
    assert await names(home, "ana") == JOBS | MAIL
    answer = await home.app.operator.call("tools.list", agent="ana")
    assert "the tools of orders are not known" in answer["notes"][0]


async def test_names_that_a_program_makes_up_shadow_nothing_and_fit_every_model(home: House) -> None:
    home.tools[:] = [{"name": name} for name in ("run", "r" * 100, "über/../x")]
    jobs = [job for job in home.jobs() if job["id"] != "orders"]
    jobs.append({**next(job for job in home.jobs() if job["id"] == "orders"), "id": "pollers"})
    home.write(jobs=jobs)
    await home.app.operator.call("reload")
    offered = await names(home, "ana") - JOBS - MAIL
    assert {name[:12] for name in offered} == {"pollers_run_", "pollers_rrrr", "pollers__ber"}
    assert max(map(len, offered)) == 64
    async with home.agent("ana") as client:
        called = {(await client.call_tool(name)).structured_content["called"]["name"] for name in offered}
    assert called == {"run", "r" * 100, "über/../x"}


async def test_an_agent_that_loses_its_account_loses_its_tools_although_its_broken_job_runs_on(home: House) -> None:
    broken = [{**job, "schedule": {"every_secs": "often"}} if job["id"] == "mail" else job for job in home.jobs()]
    lost = {"ana": {"telegram": "telegram"}, "bob": {"google": "google-bob", "telegram": "telegram"}}
    home.write(agents=lost, jobs=broken)
    await home.app.operator.call("reload")
    assert "mail" in home.app.loaded.jobs
    assert await names(home, "ana") == JOBS | ORDERS
    assert "there is no tool gmail_search" in str((await home.call("/mcp/ana", "gmail_search", {"query": "x"}))[1])


async def test_an_account_that_no_longer_names_the_agent_is_not_used_for_it(home: House) -> None:
    file = home.directory / "harken.yaml"
    main = yaml.safe_load(file.read_text())
    # without a section for agents, everybody uses the account that is called like its service
    account = main["integrations"]["google"] = main["integrations"]["google-ana"]
    main = {name: part for name, part in main.items() if name != "agents"}
    for allowed, tools in ((["ana", "bob"], MAIL), (["carl"], set())):
        account["allow_agents"] = allowed
        file.write_text(yaml.safe_dump(main))
        await home.app.operator.call("reload")
        assert ("mail" in home.app.loaded.jobs) == bool(tools)
        assert await names(home, "ana") == JOBS | ORDERS | tools


async def test_errors_of_a_service_come_in_words_and_without_its_secrets(home: House) -> None:
    home.ana.revoke()
    async with home.agent("ana") as client:
        refused = await client.call_tool("gmail_count_unread")
    assert refused.is_error
    assert "harken integrations google-ana configure" in words(refused)
    assert "refresh-token-of-ana" not in words(refused)


async def test_our_own_tokens_are_taken_out_of_what_a_job_shows(home: House) -> None:
    jobs = home.jobs()
    jobs[1]["config"]["message_template"] = "{id} and refresh-token-of-bob-2"
    home.write(jobs=jobs)
    await home.app.operator.call("reload")
    async with home.agent("ana") as client:
        shown = await client.call_tool("pollers_show", {"id": "news"})
    assert shown.structured_content["settings"]["config"]["message_template"] == "{id} and ***"


async def test_our_own_tokens_are_taken_out_of_what_a_tool_answers(home: House) -> None:
    async with home.agent("ana") as client:
        answer = await client.call_tool("orders_close_order", {"note": "is it refresh-token-of-bob-2?"})
    assert answer.structured_content["called"]["arguments"] == {"note": "is it ***?"}
    assert "refresh-token-of-bob" not in words(answer)
    given = {"agent": "ana", "name": "orders_close_order", "arguments": {"note": "refresh-token-of-bob-2"}}
    assert "refresh-token-of-bob" not in str(await home.app.operator.call("tools.call", **given))


async def test_a_call_that_comes_again_with_its_key_has_the_same_key_at_the_service(
    home: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []

    async def count(call: Call) -> dict[str, int]:
        keys.append(call.idempotency_key)
        return {"unread": 0}

    async def offered(*given: Any) -> Offer | None:
        offer = await whole(*given)
        return None if offer is None else replace(offer, tool=replace(offer.tool, run=count))

    arguments: dict[str, str] = {}

    async def act() -> Answer:
        given = {"agent": "ana", "name": "gmail_count_unread", "arguments": arguments}
        return Answer(200, json.dumps(await operator.call("tools.call", **given)))

    whole, operator = agent_tools.named_offer, home.app.operator
    monkeypatch.setattr(agent_tools, "named_offer", offered)
    for key in ("one", "one", "other"):
        await operator.once(key, "f", act)
        # as if the process had died before it answered
        for kept in await home.app.store.documents(REQUEST):
            await home.app.store.delete(REQUEST, kept.name)
    await act()
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    # what a service has refused may be mended and sent again with the key
    arguments["query"] = "is:starred"
    await operator.once("one", "g", act)
    assert keys[-1] not in keys[:-1]


async def test_an_answer_that_is_no_object_is_put_into_one_and_a_large_one_is_not_passed_on(home: House) -> None:
    home.write(jobs=[home.job("echo", "exec", "ana", command=[sys.executable, "-c", ECHO])])
    await home.app.operator.call("reload")
    async with home.agent("ana") as client:
        small = await client.call_tool("echo_text", {"size": 3})
        large = await client.call_tool("echo_text", {"size": 1_000_001})
    assert small.structured_content == {"result": "xxx"}
    assert (large.is_error, words(large)) == (
        True,
        "echo_text answered with 1000003 bytes; at most 1000000 are passed on. Ask for less",
    )


async def test_an_agent_is_told_why_an_item_of_its_own_job_did_what_it_did_and_of_no_other(home: House) -> None:
    async with home.agent("ana") as client:
        own = next(job["id"] for job in home.jobs() if job["agent"] == "ana")
        foreign = next(job["id"] for job in home.jobs() if job["agent"] == "bob")
        unseen = (await client.call_tool("explain", {"name": own, "key": "no-such-item"})).structured_content
        whole = (await client.call_tool("explain", {"name": own})).structured_content
        refused = [await client.call_tool("explain", {"name": name, "key": "x"}) for name in (foreign, "no-such-job")]
    assert "no-such-item" in unseen["sentence"]
    assert whole["trigger"] == own
    assert [answer.is_error for answer in refused] == [True, True]
    assert [words(answer).split(".")[0] for answer in refused] == [
        f"there is no job {name} of ana" for name in (foreign, "no-such-job")
    ]


async def test_an_agent_plans_and_cannot_execute(home: House) -> None:
    async with home.agent("ana") as client:
        asked = {"action": "retry", "where": 'status == "failed"'}
        plan = (await client.call_tool("bulk_plan", asked)).structured_content
        assert (plan["state"], plan["count"], plan["done"]) == ("planned", 0, 0)
        wrong = await client.call_tool("bulk_plan", {"action": "retry", "where": "nothing == 1"})
        other = await client.call_tool("bulk_plan", {**asked, "agent": "bob"})
        executed = await client.call_tool("bulk_execute", {"id": plan["id"]})
    assert [answer.is_error for answer in (wrong, other, executed)] == [True, True, True]
    assert "nothing" in words(wrong)
