"""Jobs on a mailbox as people write them: the whole engine on virtual time, with bursts, failures and restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from harken.app import App
from harken.errors import NotFound
from harken.services.gmail.tools import TOOLS
from harken.services.google import plugin as google
from harken.services.google.api import GoogleAccount
from harken.source import Call, Host
from harken.testing import HandClock, VirtualClock, virtual
from harken.testing.fakes import Answer
from harken.testing.fakes.gmail import FakeGmail
from harken.testing.fakes.ntfy import FakeNtfy
from tests.services.whole import running

MAIN = """
integrations:
  google: {google}
  ntfy: {{kind: ntfy, base_url: "{phone}", allow_private_networks: true}}
"""
LEADS = r"""
pollers:
  jobs:
    - id: ana_leads
      kind: gmail
      agent: ana
      schedule: { every_secs: 60 }
      config:
        query: "is:unread subject:(lead OR interesado)"
        newer_than: "1d"
        max_per_tick: 20
        dispatch_delay_ms: 1000
        sender_allowlist: ["@mycompany.com"]
        extract:
          name: "Nombre:\\s*(.+)"
          phone: "Tel:\\s*(\\+?\\d+)"
        require_fields: [name, phone]
        message_template: "New lead 🚨 {name} — {phone}"
        mark_read_on_dispatch: true
        deliver: { channel: ntfy, to: leads }
"""
ALL = """
pollers:
  jobs:
    - id: all
      kind: gmail
      agent: ana
      schedule: { every_secs: 60 }
      config: {query: "is:unread", message_template: "{subject}", deliver: {channel: ntfy, to: leads}}
"""

FLOW = """
name: flow
trigger:
  type: poll
  poll: {integration: gmail, query: {query: "is:unread label:invoices"}, interval: 1m}
steps:
  - {action: notify, channel: ntfy, to: leads, text: "{{.trigger.event.subject}}"}
  - {action: google.mark_read, message: "{{.trigger.event.id}}"}
"""


@asynccontextmanager
async def world(clock: VirtualClock, directory: Path, jobs: str) -> AsyncIterator[tuple[FakeGmail, FakeNtfy]]:
    gmail, phone = FakeGmail(clock), FakeNtfy(clock)
    async with gmail.serve(), phone.serve():
        account = {"kind": "google", **gmail.account(), "allow_private_networks": True}
        main = MAIN.format(google=msgspec.json.encode(account).decode(), phone=phone.url)
        (directory / "harken.yaml").write_text(main)
        (directory / "pollers.yaml").write_text(jobs)
        yield gmail, phone


def lead(gmail: FakeGmail, name: str, **more: Any) -> str:
    text = f"Nombre: {name}\nTel: +573001\n"
    return gmail.receive(**{"subject": "lead", "sender": "Web <web@mycompany.com>", "text": text, **more})


def notifications(phone: FakeNtfy) -> list[str]:
    return [one["message"] for one in phone.cached]


async def verdicts(app: App, trigger: str) -> dict[str, str]:
    """What was decided about each mail, by its id."""
    events = (await app.operator.call("events.list", limit=200))["items"]
    by_subject = {event["subject"]: [one for one in event["verdicts"] if one["trigger"] == trigger] for event in events}
    return {subject: f"{found[0]['outcome']}: {found[0]['reason']}" for subject, found in by_subject.items() if found}


@virtual
async def test_each_lead_is_delivered_once_and_then_marked_over_restarts(clock: VirtualClock, tmp_path: Path):
    random, names = Random(3), []
    async with world(clock, tmp_path, LEADS) as (gmail, phone):
        lead(gmail, "too old", age=2 * 86_400)
        lead(gmail, "Eva", age=7200)
        names.append("Eva")
        for round in range(3):
            async with running(tmp_path, clock):
                for number in range(15):
                    names.append(f"José {round}.{number}")
                    lead(gmail, names[-1], late=random.choice([0, 200]), subject=random.choice(["lead", "Interesado?"]))
                    gmail.receive(subject="nothing of interest")
                    await clock.sleep(random.uniform(1, 90))
                await clock.sleep(900)
            for number in range(5):
                names.append(f"while down {round}.{number}")
                lead(gmail, names[-1])
            await clock.sleep(3600)
        async with running(tmp_path, clock):
            await clock.sleep(600)
        assert Counter(notifications(phone)) == Counter(f"New lead 🚨 {name} — +573001" for name in names)
        unread = {gmail.mails[id].texts["subject"] for id in gmail.unread()}
        assert unread == {"nothing of interest", "lead"}
        assert len([id for id in gmail.unread() if "nothing" not in gmail.mails[id].texts["subject"]]) == 1


@virtual
async def test_a_burst_of_500_is_delivered_completely_spaced_and_once(clock: VirtualClock, tmp_path: Path):
    async with world(clock, tmp_path, ALL) as (gmail, phone):
        gmail.cap = 100
        put = [gmail.receive(subject=f"mail {number}", age=600 - number) for number in range(500)]
        async with running(tmp_path, clock):
            await clock.sleep(600)
        async with running(tmp_path, clock):
            await clock.sleep(3600)
        assert Counter(notifications(phone)) == Counter(f"mail {number}" for number in range(500))
        times = [seen.at for seen in phone.seen]
        assert max(Counter(int(at) for at in times).values()) <= 2, "a second between two"
        assert (gmail.unread(), len(put)) == ([], 500)


@virtual
async def test_a_mail_whose_delivery_fails_stays_unread_until_it_succeeds(clock: VirtualClock, tmp_path: Path):
    async with world(clock, tmp_path, ALL) as (gmail, phone):
        phone.answers = [Answer(status=503) for _ in range(4)]
        id = gmail.receive(subject="hello")
        async with running(tmp_path, clock):
            await clock.sleep(20)
            assert (notifications(phone), gmail.unread()) == ([], [id])
            await clock.sleep(3600)
        assert (notifications(phone), gmail.unread()) == (["hello"], [])


@virtual
async def test_what_is_not_delivered_says_why_and_stays_unread(clock: VirtualClock, tmp_path: Path):
    async with world(clock, tmp_path, LEADS) as (gmail, phone):
        eve = lead(gmail, "Eve", sender='"web@mycompany.com" <eve@evil.org>')
        nameless = lead(gmail, "", text="Tel: 7")
        async with running(tmp_path, clock) as app:
            await clock.sleep(200)
            by_subject = await verdicts(app, "ana_leads")
        assert 'event.sender_domain in ["mycompany.com"] is false (event.sender_domain = "evil.org")' in by_subject[eve]
        assert by_subject[nameless] == 'filtered: event.name != "" is false (event.name = "")'
        assert (notifications(phone), sorted(gmail.unread())) == ([], sorted([eve, nameless]))


@virtual
async def test_a_withdrawn_consent_pauses_the_job_and_nothing_is_lost(clock: VirtualClock, tmp_path: Path):
    async with world(clock, tmp_path, ALL) as (gmail, phone):
        async with running(tmp_path, clock) as app:
            await clock.sleep(120)
            known = dict(gmail.refresh_tokens)
            gmail.revoke()
            gmail.receive(subject="meanwhile")
            await clock.sleep(300)
            shown = await app.operator.call("triggers.show", name="all")
            assert "harken integrations google configure" in str(shown)
            gmail.refresh_tokens.update(known)
            await app.operator.call("triggers.resume", name="all")
            await clock.sleep(300)
        assert notifications(phone) == ["meanwhile"]


@virtual
async def test_a_workflow_reads_a_mailbox_and_marks_what_it_did(clock: VirtualClock, tmp_path: Path):
    async with world(clock, tmp_path, "") as (gmail, phone):
        (tmp_path / "workflows").mkdir()
        (tmp_path / "workflows" / "flow.yaml").write_text(FLOW)
        label = gmail.label("invoices")
        async with running(tmp_path, clock):
            await clock.sleep(100)
            gmail.receive(subject="Rechnung 7", labels=["INBOX", "UNREAD", label])
            await clock.sleep(300)
        assert (notifications(phone), gmail.unread()) == (["Rechnung 7"], [])


class TestTools:
    @pytest.fixture
    async def gmail(self, clock: HandClock) -> AsyncIterator[FakeGmail]:
        fake = FakeGmail(clock)
        async with fake.serve():
            yield fake

    async def ask(self, gmail: FakeGmail, host: Host, name: str, **params: Any) -> Any:
        tool, account = TOOLS[name], GoogleAccount.model_validate(gmail.account())
        return await tool.run(
            Call(params=tool.params.model_validate(params), account=account, host=host, idempotency_key="k")
        )

    def test_only_those_that_write_say_so(self):
        assert sorted(TOOLS) == [
            "gmail_count_unread",
            "gmail_labels_list",
            "gmail_mark_read",
            "gmail_mark_unread",
            "gmail_message_get",
            "gmail_search",
        ]
        assert [name for name in sorted(TOOLS) if TOOLS[name].writes] == ["gmail_mark_read", "gmail_mark_unread"]

    async def test_unread_mail_is_counted_and_not_estimated(self, gmail: FakeGmail, host: Host):
        for number in range(630):
            gmail.receive(subject=f"mail {number}")
        gmail.receive(labels=["INBOX"])
        assert await self.ask(gmail, host, "gmail_count_unread") == {"unread": 630, "or_more": False}
        found = await self.ask(gmail, host, "gmail_count_unread", query="subject:29 OR subject:31")
        assert found == {"unread": 33, "or_more": False}

    async def test_a_search_shows_little_of_few(self, gmail: FakeGmail, host: Host):
        for number in range(30):
            gmail.receive(subject=f"mail {number}", text="x" * 5000, age=30 - number)
        found = await self.ask(gmail, host, "gmail_search", query="is:unread", limit=3)
        assert [one["subject"] for one in found["messages"]] == ["mail 29", "mail 28", "mail 27"]
        assert found["more"] is True
        assert len(msgspec.json.encode(found)) < 3000

    async def test_a_mail_is_read_cut_and_not_marked(self, gmail: FakeGmail, host: Host):
        id = gmail.receive(subject="long", text="word " * 5000)
        found = await self.ask(gmail, host, "gmail_message_get", id=id)
        assert (found["subject"], len(found["body"]) <= 8000, gmail.unread()) == ("long", True, [id])

    async def test_a_mail_is_marked_both_ways(self, gmail: FakeGmail, host: Host):
        id = gmail.receive()
        assert await self.ask(gmail, host, "gmail_mark_read", id=id) == {"id": id, "unread": False}
        assert gmail.unread() == []
        assert await self.ask(gmail, host, "gmail_mark_unread", id=id) == {"id": id, "unread": True}
        assert gmail.unread() == [id]

    async def test_a_step_that_marks_a_deleted_mail_does_not_fail(self, gmail: FakeGmail, host: Host):
        account, act = GoogleAccount.model_validate(gmail.account()), google.actions["mark_read"]
        call = Call(
            params=act.params.model_validate({"message": "nope"}), account=account, host=host, idempotency_key="k"
        )
        assert await act.run(call) == {"id": "nope", "unread": False, "gone": True}
        with pytest.raises(NotFound):
            await self.ask(gmail, host, "gmail_mark_read", id="nope")

    async def test_labels_are_listed_by_name(self, gmail: FakeGmail, host: Host):
        gmail.label("lead")
        found = await self.ask(gmail, host, "gmail_labels_list")
        assert {"id": "Label_1", "name": "lead"} in found["labels"]
