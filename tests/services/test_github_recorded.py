"""Replies that GitHub once gave, from 2012 to now, out of the source distribution of PyGithub."""

from __future__ import annotations

import ast
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from harken.errors import NeedsAttention, RetryLater
from harken.http import Reply
from harken.kit.values_from_payload import instant
from harken.outgoing_rate_limit import is_rate_limited
from harken.services.github.api import Account, Api
from harken.services.github.events_from_issue_history import IssueFilter, event_of, is_pull, issue_of, matched_at
from harken.services.github.issue_to_ticket import access_in, change_of, comes_from, comment_of, label_names, ticket_of
from harken.source import Host
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.server import Answer
from harken.ticket import Access
from tests.downloads.corpora import corpus
from tests.services.github import source
from tests.services.reading import events, page

pytestmark = [pytest.mark.worker_group("github-corpus"), pytest.mark.timeout(300)]

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
RECORDED = re.compile(
    r"^https?\n(?P<method>\w+)\n.*\n.*\n(?P<path>/.*)\n.*\n.*\n(?P<status>\d{3})\n(?P<headers>\[.*\])\n(?P<body>.*)$",
    re.MULTILINE,
)


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    status: int
    headers: list[tuple[str, str]]
    body: str

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def reply(self) -> Reply:
        headers = CIMultiDictProxy(CIMultiDict(self.headers))
        return Reply(
            self.method, URL(f"https://api.github.com{self.path}"), self.status, headers, self.body.encode(), 0.0
        )


def exchanges_in(text: str) -> list[Exchange]:
    return [
        Exchange(
            method=found["method"],
            path=found["path"],
            status=int(found["status"]),
            headers=[(name, str(value)) for name, value in ast.literal_eval(found["headers"])],
            body=found["body"],
        )
        for found in RECORDED.finditer(text)
    ]


@pytest.fixture(scope="module")
def exchanges() -> list[Exchange]:
    """Every recorded exchange about issues and permissions, and every refusal."""
    texts = [path.read_text("utf-8") for path in sorted(corpus("PyGithub").rglob("*.txt"))]
    wanted = ("/issues", "/permission\n", "\n403\n", "\n404\n")
    whole = [text for text in texts if any(sign in text for sign in wanted)]
    return [one for text in whole for one in exchanges_in(text)]


def about(exchange: Exchange, *tail: str) -> bool:
    parts = URL(exchange.path).parts
    return parts[1:2] == ("repos",) and parts[4:5] == ("issues",) and _like(parts[5:], tail)


def _like(parts: tuple[str, ...], tail: tuple[str, ...]) -> bool:
    return len(parts) == len(tail) and all(
        part == wanted or (wanted == "N" and part.isdigit()) for part, wanted in zip(parts, tail, strict=True)
    )


@pytest.fixture(scope="module")
def lists(exchanges: list[Exchange]) -> list[Exchange]:
    return [one for one in exchanges if about(one) and one.method == "GET" and one.status == 200]


@pytest.fixture(scope="module")
def items(exchanges: list[Exchange], lists: list[Exchange]) -> list[dict[str, Any]]:
    """Every issue that was recorded whole; the collectors have cut some of them down to an id."""
    single = [one.json() for one in exchanges if about(one, "N") and one.status == 200]
    found = [*single, *(item for one in lists for item in one.json())]
    return [item for item in found if item and "number" in item]


def test_there_are_enough_recordings_to_mean_something(lists: list[Exchange], items: list[dict[str, Any]]):
    assert len(lists) >= 80
    assert len(items) >= 500
    assert {issue_of(item, "o/r").pull for item in items} == {True, False}


def test_ids_names_and_states_agree_with_what_was_recorded(items: list[dict[str, Any]]):
    for item in items:
        issue = issue_of(item, "o/r")
        event = event_of(issue, matched_at(issue, (), IssueFilter()), IssueFilter(), "o/r")
        data = event.data
        assert event.subject == f"o/r#{item['number']}@{item['id']}"
        assert (data["title"], data["state"], data["html_url"]) == (item["title"], item["state"], item["html_url"])
        assert data["body"] == (item["body"] or "")
        assert data["labels"] == [label["name"] for label in item["labels"]]
        assert data["author"]["login"] == item["user"]["login"]
        assert data["comments"] == item["comments"]
        assert event.occurred_at == instant(item["created_at"])
        assert issue.updated_at is not None
        assert issue.pull == ("/pull" in str((item.get("pull_request") or {}).get("html_url")))


async def test_every_recorded_list_is_read_by_the_source(lists: list[Exchange], hub: GitHub, host: Host):
    for one in lists:
        hub.answers = [Answer(body=one.body.encode())]
        batch = await page(source(hub, host, kind="both", state="all"), since=LONG_AGO)
        shown = Counter(event.data["id"] for event in events([batch]))
        assert shown == Counter((item or {}).get("id") for item in one.json())


def test_recorded_links_lead_to_the_next_page_on_the_same_origin(lists: list[Exchange]):
    linked = [one for one in lists if any(name.lower() == "link" for name, _ in one.headers)]
    nexts = [one.reply().link("next") for one in linked]
    assert sum(found is not None for found in nexts) >= 20
    assert {URL(found).host for found in nexts if found} == {"api.github.com"}


def test_a_recorded_history_tells_who_was_assigned_and_labelled_when(exchanges: list[Exchange]):
    histories = [one.json() for one in exchanges if about(one, "N", "events") and one.status == 200]
    assert histories
    told_of = [event for history in histories for event in history]
    assert all(instant(event["created_at"]) for event in told_of)
    single = [one.json() for one in exchanges if about(one, "events", "N") and one.status == 200]
    labelled = [event for event in [*told_of, *single] if event["event"] == "labeled"]
    assigned = [event for event in [*told_of, *single] if event["event"] == "assigned"]
    assert labelled
    assert assigned
    start = min(instant(event["created_at"]) or LONG_AGO for event in [*told_of, *single]) - timedelta(days=1)
    issue = issue_of({"id": 1, "number": 1, "created_at": start.isoformat()}, "o/r")
    for event in labelled:
        wanted = IssueFilter(labels=frozenset({event["label"]["name"].casefold()}))
        assert matched_at(issue, [event], wanted) == instant(event["created_at"])
    for event in assigned:
        login = (event.get("assignee") or {"login": "whoever"})["login"]
        assert matched_at(issue, [event], IssueFilter(assignee=login.casefold())) == instant(event["created_at"])


def test_recorded_refusals_are_errors_and_limits_are_waited_for(exchanges: list[Exchange], host: Host):
    api = Api(Account.model_validate({"token": "t"}), host)
    refused = [one for one in exchanges if one.status in (401, 403, 404, 410, 422, 429)]
    assert len(refused) >= 20
    for one in refused:
        reply = one.reply()
        limited = is_rate_limited(reply.status, reply.headers) or "secondary rate limit" in one.body
        with pytest.raises(RetryLater if limited else NeedsAttention):
            api.check(reply)


def test_recorded_issues_are_tickets(items: list[dict[str, Any]]):
    for item in items:
        ticket = ticket_of(item, "o/r")
        assert (ticket.id, ticket.ref) == (f"{item['number']}@{item['id']}", f"o/r#{item['number']}")
        assert (ticket.closed, ticket.version) == (item["state"] == "closed", item["updated_at"])
        assert ticket.labels == tuple(label["name"] for label in item["labels"])
        assert is_pull(item) == issue_of(item, "o/r").pull


def test_recorded_comments_and_labels_tell_who_and_what(exchanges: list[Exchange]):
    read = [one for one in exchanges if (one.method, one.status) == ("GET", 200)]
    lists = [one.json() for one in read if about(one, "N", "comments") or about(one, "comments")]
    comments = [(comment_of(item), item) for one in lists for item in one]
    assert len(comments) >= 30
    for comment, item in comments:
        assert (comment.id, comment.text, comment.url) == (str(item["id"]), item["body"], item.get("html_url", ""))
        assert comment.created_at is not None
        assert comment.author is not None
        assert comment.author.bot == (item["user"].get("type") == "Bot")
    written = [one for one in exchanges if about(one, "N", "labels") and (one.method, one.status) == ("POST", 200)]
    assert written
    assert all(label_names(one.json()) for one in written)
    entries = [entry for one in exchanges if about(one, "N", "events") and one.status == 200 for entry in one.json()]
    changes = [change for entry in entries if (change := change_of(entry)) is not None]
    assert len(changes) == sum(entry["event"] in ("labeled", "unlabeled") for entry in entries)
    assert all(change.actor is not None and change.at is not None for change in changes)


def test_recorded_permissions_are_access(exchanges: list[Exchange]):
    asked = [one for one in exchanges if one.path.endswith("/permission")]
    granted = [one.json() for one in asked if one.status == 200]
    assert {answer["permission"] for answer in granted} == {"admin", "write"}
    assert {access_in(answer) for answer in granted} == {Access.WRITE}


def test_recorded_pull_requests_are_found_by_their_branch(exchanges: list[Exchange]):
    found = [one.json() for one in exchanges if one.status in (200, 201) and one.path.split("?")[0].endswith("/pulls")]
    pulls = [pull for one in found for pull in (one if isinstance(one, list) else [one]) if pull["head"].get("user")]
    assert len(pulls) >= 20
    for pull in pulls:
        head, own = pull["head"], pull["head"]["repo"]["id"] == pull["base"]["repo"]["id"]
        assert comes_from(pull, head["label"])
        assert comes_from(pull, head["ref"]) == own
        assert not comes_from(pull, f"somebody-else:{head['ref']}")
