"""Service hooks of Azure DevOps about work items: HTTP Basic, and payloads as documented and as they are in life."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from harken.errors import Unauthorized
from harken.services.azure_devops import plugin
from harken.services.azure_devops.tracker_webhooks import WorkItemNotices
from harken.source import Host
from harken.testing.fakes.azure_devops import AzureDevOps
from harken.ticket import Actor, Notice
from tests.services.azure_devops import SHOP, account
from tests.services.notice_contract import CLOCK, SECRET, NoticeReaderContract, request

# shaped as https://learn.microsoft.com/en-us/azure/devops/service-hooks/events shows them
CONTAINERS = {"project": {"id": "be9b3917-87e6-42a4-a549-2bc06a7a878f"}}
FIELDS = {
    "System.AreaPath": "FabrikamCloud",
    "System.TeamProject": "FabrikamCloud",
    "System.WorkItemType": "Bug",
    "System.State": "New",
    "System.CreatedBy": "Jamal Hartnett",
    "System.Title": "Some great new idea!",
    "System.Tags": "fix; ui",
}
CREATED: dict[str, Any] = {
    "subscriptionId": "00000000-0000-0000-0000-000000000000",
    "notificationId": 5,
    "eventType": "workitem.created",
    "publisherId": "tfs",
    "resource": {
        "id": 5,
        "rev": 1,
        "fields": FIELDS,
        "url": "https://dev.azure.com/fabrikam/DefaultCollection/_apis/wit/workItems/5",
    },
    "resourceContainers": CONTAINERS,
    "createdDate": "2016-09-19T13:03:27.0379153Z",
}
UPDATED: dict[str, Any] = CREATED | {
    "eventType": "workitem.updated",
    "resource": {
        "id": 2,
        "workItemId": 0,
        "rev": 2,
        "revisedBy": {"id": "e5a5f7f8", "displayName": "Jamal Hartnett"},
        "fields": {"System.State": {"oldValue": "New", "newValue": "Approved"}},
        "url": "https://dev.azure.com/fabrikam/DefaultCollection/_apis/wit/workItems/5/updates/2",
        "revision": {"id": 5, "rev": 2, "fields": FIELDS},
    },
}
# as a subscription with a newer resource version sends it
COMMENTED: dict[str, Any] = CREATED | {
    "eventType": "workitem.commented",
    "resource": {
        "id": 7,
        "workItemId": 12345,
        "rev": 7,
        "revisedBy": {"id": "e5a5f7f8", "displayName": "Jamal Hartnett", "uniqueName": "jamal@fabrikam.com"},
        "fields": {
            "System.History": {"newValue": "<div>Please go on &amp; fix it</div>"},
            "System.ChangedDate": {"oldValue": "x", "newValue": "2026-09-19T13:03:20Z"},
        },
        "commentVersionRef": {"commentId": 777, "version": 1},
        "revision": {"id": 12345, "fields": FIELDS},
    },
}


def basic(secret: str, user: str = "harken") -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{secret}'.encode()).decode()}"}


def read(payload: Any) -> list[Notice]:
    return list(WorkItemNotices(SECRET, None, CLOCK).read(request(basic(SECRET), json.dumps(payload).encode())))


class TestAzureDevOpsNotices(NoticeReaderContract):
    payload, proof = COMMENTED, "authorization"

    def reader(self, secret: str) -> WorkItemNotices:
        return WorkItemNotices(secret, None, CLOCK)

    def headers(self, body: bytes, secret: str = SECRET) -> dict[str, str]:
        return basic(secret)


def test_the_secret_is_the_password_of_any_user_or_user_and_password():
    body = json.dumps(CREATED).encode()
    for user in ("", "harken", "größe"):
        assert WorkItemNotices("s3cret", None, CLOCK).read(request(basic("s3cret", user), body))
    named = WorkItemNotices("mia:s3cret", None, CLOCK)
    assert named.read(request(basic("s3cret", "mia"), body))
    for wrong in (basic("s3cret", "leo"), basic("", "mia"), basic("mia:s3cre")):
        with pytest.raises(Unauthorized):
            named.read(request(wrong, body))


@pytest.mark.parametrize(
    "header", ["Bearer s3cret", "s3cret", "Basic s3cret", "Basic " + base64.b64encode(b"s3cret").decode(), "Basic ?"]
)
def test_what_is_not_basic_is_refused(header: str):
    with pytest.raises(Unauthorized):
        WorkItemNotices("s3cret", None, CLOCK).read(request({"authorization": header}, b"{}"))


@pytest.mark.parametrize("kind", ["created", "deleted", "restored", "commented"])
def test_a_work_item_is_named(kind: str):
    (notice,) = read(CREATED | {"eventType": f"workitem.{kind}"})
    assert notice == Notice(
        location="FabrikamCloud",
        id="5",
        commented=kind == "commented",
        sent_at=datetime(2016, 9, 19, 13, 3, 27, 37915, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    "resource",
    [
        UPDATED["resource"],
        UPDATED["resource"] | {"workItemId": 5, "revision": None},
        {"id": 2, "workItemId": 5, "rev": 2},
        {"id": 2, "url": "https://dev.azure.com/fabrikam/be9b3917/_apis/wit/workItems/5/updates/2"},
        {"id": 2, "url": "https://HOST/tfs/Main/_apis/wit/workitems/5"},
    ],
)
def test_a_change_names_the_work_item_and_not_the_change(resource: dict[str, Any]):
    (notice,) = read(UPDATED | {"resource": resource})
    assert notice.id == "5"


def test_a_minimal_hook_names_no_project():
    minimal = {"id": 5, "url": "https://dev.azure.com/fabrikam/_apis/wit/workItems/5"}
    (notice,) = read(CREATED | {"resource": minimal})
    assert (notice.location, notice.id) == ("", "5")


def test_a_comment_is_shown_where_the_hook_says_whose_it_is():
    (notice,) = read(COMMENTED)
    assert (notice.id, notice.location) == ("12345", "FabrikamCloud")
    assert notice.comment is not None
    assert notice.comment.id == "777"
    assert notice.comment.text == "Please go on & fix it"
    assert notice.comment.author == Actor(id="e5a5f7f8", login="jamal@fabrikam.com")
    resource = {name: value for name, value in COMMENTED["resource"].items() if name != "revisedBy"}
    assert read(COMMENTED | {"resource": resource})[0].comment is None


def test_what_is_about_no_work_item_tells_nothing():
    assert read(CREATED | {"eventType": "build.complete"}) == []
    assert read(CREATED | {"resource": None}) == []
    assert read(UPDATED | {"resource": {"id": 2, "rev": 2}}) == []
    for id in (0, -1, 2**31, True, "5; drop", 1.5, None):
        assert read(CREATED | {"resource": {"id": id, "fields": FIELDS}}) == []


async def test_the_id_of_a_hook_is_that_of_the_tracker(board: AzureDevOps, host: Host):
    item = board.create("fix")
    shown = item.to_json()
    (notice,) = read(CREATED | {"resource": {"id": shown["id"], "fields": shown["fields"]}})
    assert plugin.tracker is not None
    ticket = await plugin.tracker(SHOP, account(board), host).get(notice.id)
    assert ticket is not None
    assert (ticket.id, SHOP) == (notice.id, notice.location)
    assert plugin.notices is WorkItemNotices
