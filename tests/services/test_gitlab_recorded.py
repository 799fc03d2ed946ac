"""Issues that GitLab once gave, out of the source distribution of GrimoireLab's test data."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from harken.kit.values_from_payload import instant
from harken.services.gitlab.events_from_issue_history import IssueFilter, event_of, issue_of, matched_at
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.gitlab import GitLab
from harken.testing.fakes.server import Answer
from tests.downloads.corpora import corpus
from tests.services.gitlab import source
from tests.services.reading import events, page

pytestmark = [pytest.mark.worker_group("grimoire-corpus"), pytest.mark.timeout(300)]

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def items() -> list[dict[str, Any]]:
    found = msgspec.json.decode((corpus("grimoire-elk") / "tests/data/gitlab.json").read_bytes())
    return [one["data"] for one in found if one["category"] == "issue"]


def test_names_states_and_times_agree_with_what_was_recorded(items: list[dict[str, Any]]):
    assert len(items) >= 5
    for item in items:
        issue = issue_of(item, "a/b")
        event = event_of(issue, matched_at(issue, item["notes_data"], IssueFilter()), IssueFilter(), "a/b")
        data = event.data
        assert event.subject == f"a/b#{item['iid']}@{item['id']}"
        assert (data["title"], data["state"], data["web_url"]) == (item["title"], item["state"], item["web_url"])
        assert (data["description"], data["labels"]) == (item["description"] or "", item["labels"])
        assert data["author"]["username"] == (item["author"] or {"username": ""})["username"]
        assert [one["username"] for one in data["assignees"]] == [one["username"] for one in item["assignees"]]
        assert event.occurred_at == instant(item["created_at"])
        assert issue.updated_at == instant(item["updated_at"])


async def test_a_list_of_them_is_read_by_the_source(items: list[dict[str, Any]], clock: HandClock, host: Host):
    lab = GitLab(clock)
    async with lab.serve():
        lab.answers = [Answer(body=msgspec.json.encode(items))]
        batch = await page(source(lab, host, state="all"), since=LONG_AGO)
    assert sorted(event.data["id"] for event in events([batch])) == sorted(item["id"] for item in items)
