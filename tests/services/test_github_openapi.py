"""No request, parameter or field that we send to GitHub is invented: its own OpenAPI document has them all.

The fixture `hub` checks the requests of every test that uses it; here each request that the document was cut for is
made at least once, and inventions are found.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from harken.services.github import Query, plugin
from harken.source import Call, Host
from harken.testing import HandClock
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.github_app import InstalledApp
from harken.testing.fakes.server import Seen
from harken.ticket import Actor, PullRequest
from tests.services.github import SHOP, account, source
from tests.services.github_openapi import _requests, problems, request_of
from tests.services.test_github_app import app_account, tracker
from tests.services.ticket_tracker_contract import all_changed, all_labelled


async def use_all_of_it(hub: GitHub, host: Host, clock: HandClock) -> None:
    hub.app = InstalledApp(SHOP)
    hub.repos[SHOP].branches.append("harken/1")
    since = clock.now()
    issue = hub.open("bug", text="hm")
    clock.advance(60)
    hub.label(issue, "ui", by="leo")
    tickets = tracker(hub, host)
    await tickets.own_account()
    await all_labelled(tickets, "bug", "ui", closed=True)
    await all_changed(tickets, since)
    ticket = await tickets.get(str(issue.number))
    assert ticket is not None
    await tickets.label_history(ticket)
    await tickets.access_of(Actor(id="7", login="mia"))
    await tickets.ensure_labels(["harken:done"])
    await tickets.webhooks()
    await tickets.swap_labels(ticket, ["harken:done", "größe/🔥"], ["ui"])
    await tickets.swap_labels(ticket, [], ["harken:done"])
    written = await tickets.comment(ticket, "hello")
    await tickets.edit_comment(ticket, written.id, "bye")
    await tickets.comments(ticket, since)
    for status in ("closed", "open", "completed", "not_planned"):
        await tickets.transition(ticket, status)
    wanted = PullRequest(repo=SHOP, head="harken/1", base="main", title="Fix", text="As asked")
    assert await tickets.ensure_pull_request(wanted) == await tickets.ensure_pull_request(wanted)


async def use_the_rest(hub: GitHub, host: Host, clock: HandClock) -> None:
    """The feed with all that a query may ask for, its check, and the actions of steps."""
    query: dict[str, Any] = {"labels": ["bug"], "assignee": "leo", "author": ["leo"], "milestone": "1.0"}
    await source(hub, host, **query).poll(None, clock.now() - timedelta(hours=1))
    assert plugin.check is not None
    assert plugin.whoami is not None
    await plugin.check(Query.model_validate({"repos": SHOP, **query}), account(hub), host)
    await plugin.whoami(account(hub), host)
    hub.apps["fine"] = "helper[bot]"
    await plugin.whoami(account(hub, "fine"), host)
    await plugin.whoami(app_account(hub), host)
    number = hub.open("bug").number
    fields = {"comment": {"text": "hello"}, "label": {"label": "ui"}, "unlabel": {"label": "bug"}}
    for name, action in plugin.actions.items():
        params = action.params.model_validate({"repo": SHOP, "issue": number, **fields[name]})
        await action.run(Call(params=params, account=account(hub), host=host, idempotency_key="1"))


async def test_every_request_is_made_and_known(hub: GitHub, host: Host, clock: HandClock):
    await use_all_of_it(hub, host, clock)
    await use_the_rest(hub, host, clock)
    assert problems(hub.seen) == set()
    assert {request_of(seen) for seen in hub.seen} - {""} == set(_requests())


def seen(method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"") -> Seen:
    return Seen(method=method, path=path, query=query or {}, headers={}, body=body, status=200)


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (seen("GET", "/repos/acme/shop/tickets"), "is no request of GitHub"),
        (seen("PUT", "/repos/acme/shop/issues/1/labels"), "is no request of GitHub"),
        (seen("GET", "/repos/acme/shop/issues", {"label": "bug"}), "no parameter label"),
        (seen("GET", "/repos/acme/shop/issues", {"state": "opened"}), "'opened' is not one of"),
        (seen("GET", "/repositories/4/issues", {"per_page": "many"}), "'many' is not of type 'integer'"),
        (seen("POST", "/repos/acme/shop/issues/1/comments", body=b'{"text": "hello"}'), "no field text"),
        (seen("POST", "/repos/acme/shop/issues/1/comments", body=b'{"body": 7}'), "7 is not of type 'string'"),
        (seen("POST", "/repos/acme/shop/pulls", body=b'{"head": "x"}'), "'base' is a required property"),
        (seen("GET", "/user", body=b"{}"), "has no body"),
    ],
)
def test_what_is_invented_is_found(request_: Seen, problem: str):
    assert problem in "\n".join(problems([request_]))
