"""What lists call an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from harken.kit.mail import MailMessage, Part, mail_fields
from harken.operate.output_rows import title_of


def mail(*, subject: str, body: str, **extract: str) -> dict[str, Any]:
    headers = {"subject": [subject], "from": ["Ada <ada@example.com>"]}
    return mail_fields(MailMessage(headers=headers, root=Part(data=body.encode())), extract)


def test_the_title_of_a_mail_is_its_subject_whatever_was_extracted() -> None:
    fields = mail(subject="A new lead", body="Name: Grace\nTitle: Dr", name="Name: (.+)", title="Title: (.+)")
    assert (fields["name"], fields["title"]) == ("Grace", "Dr")
    assert title_of(fields) == "A new lead"


def test_the_title_of_a_mail_without_a_subject_is_how_it_begins() -> None:
    assert title_of(mail(subject="", body="Name: Grace", name="Name: (.+)")) == "Name: Grace"


@pytest.mark.parametrize("name", ["title", "summary", "name"])
def test_what_is_no_mail_is_called_by_its_title_before_its_subject(name: str) -> None:
    assert title_of({"subject": "build", name: "The build failed"}) == "The build failed"


@pytest.mark.parametrize(
    "sent",
    [
        {"type": "event_callback", "event": {"type": "message", "text": "disk full", "ts": "1.0"}},
        {"event": {"id": "01", "event_type": "incident.triggered", "data": {"id": "P1", "title": "disk full"}}},
        {"action": "opened", "issue": {"number": 1, "title": "disk full"}, "repository": {"name": "shop"}},
        {"object_kind": "issue", "object_attributes": {"title": "disk full"}},
        {"webhookEvent": "jira:issue_updated", "issue": {"key": "OPS-1", "fields": {"summary": "disk full"}}},
        {"status": "firing", "labels": {"alertname": "Disk"}, "annotations": {"summary": "disk full"}},
    ],
    ids=["slack", "pagerduty", "github", "gitlab", "jira", "alertmanager"],
)
def test_the_title_of_a_webhook_is_that_of_what_it_is_about(sent: Mapping[str, Any]) -> None:
    assert title_of(sent) == "disk full"


def test_a_title_is_not_looked_for_at_any_depth() -> None:
    sent: dict[str, Any] = {"title": "deep"}
    for _ in range(10_000):
        sent = {"data": sent}
    assert title_of(sent) == ""
