"""Destinations as people use them: a notify step, whose account is configured, stored or in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel

from harken.app.source_and_action_factory import Factory
from harken.config.loaded import Loaded
from harken.config.loader import load
from harken.errors import Refused
from harken.run.compiled_workflows import check_workflow
from harken.services import registry
from harken.source import Message
from harken.testing import HandClock, VirtualClock, virtual
from harken.testing.fakes.discord import TOKEN as DISCORD
from harken.testing.fakes.discord import FakeDiscord
from harken.testing.fakes.ntfy import FakeNtfy
from harken.testing.fakes.slack import TOKEN as SLACK
from harken.testing.fakes.smtp_server import PASSWORD, FakeMail
from harken.testing.fakes.telegram import TOKEN as TELEGRAM
from harken.testing.fakes.telegram import FakeTelegram
from harken.testing.fakes.whatsapp import NUMBER, FakeWhatsApp
from harken.testing.fakes.whatsapp import TOKEN as WHATSAPP
from tests.services.slack_world import workspace
from tests.services.whole import started, write

ROOT = Path(__file__).parents[2]
KINDS = ("discord", "email", "ntfy", "slack", "telegram", "whatsapp")
ENVIRON = {
    "DISCORD_BOT_TOKEN": DISCORD,
    "SLACK_BOT_TOKEN": SLACK,
    "SMTP_FROM": "harken@example.com",
    "SMTP_HOST": "mail.example.com",
    "SMTP_PASSWORD": PASSWORD,
    "SMTP_PORT": "2525",
    "SMTP_USERNAME": "ana",
    "TELEGRAM_BOT_TOKEN": TELEGRAM,
    "WHATSAPP_PHONE_NUMBER_ID": NUMBER,
    "WHATSAPP_TOKEN": WHATSAPP,
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    kind: str
    fields: Mapping[str, Any] = field(repr=False)


class Drawer:
    """What a person has stored."""

    def __init__(self, **entries: Entry) -> None:
        self._entries = entries

    def accounts(self) -> Mapping[str, str]:
        return {name: entry.kind for name, entry in self._entries.items()}

    def account(self, name: str) -> Entry | None:
        return self._entries.get(name)


def notify(channel: str, to: str = "42") -> str:
    return f"""
name: hourly
trigger:
  schedule: {{every: 1h}}
steps:
  - {{action: notify, channel: {channel}, to: "{to}", title: Stündlich, text: "the hour is over 🕐"}}
"""


def loaded(directory: Path, workflow: str, *, main: str = "", **given: Any) -> Loaded:
    write(directory, f"store: harken.db\n{main}", hourly=workflow)
    return load(directory, plugins=registry(), check_workflow=check_workflow, **{"environ": {}, **given})


def at(fake: Any, kind: str, **fields: str) -> str:
    given = {"kind": kind, "base_url": fake.url, "allow_private_networks": "true", **fields}
    return f"integrations:\n  {kind}: {{{', '.join(f'{name}: {value!r}' for name, value in given.items())}}}\n"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ntfy"])
def test_an_account_in_the_environment_is_enough(kind: str, tmp_path: Path) -> None:
    configuration = loaded(tmp_path, notify(kind, "+49 151 23456789"), environ=ENVIRON)
    assert [str(finding) for finding in configuration.findings] == []
    assert configuration.integrations[kind].origin == "environment"


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"ntfy"}))
def test_without_an_account_the_workflow_is_refused_with_what_to_do(kind: str, tmp_path: Path) -> None:
    complaints = " ".join(str(finding) for finding in loaded(tmp_path, notify(kind)).findings)
    variable = next(name for name in ENVIRON if registry()[kind].environment.get(name))
    assert f"{variable.partition('_')[0]}_" in complaints


def test_ntfy_needs_no_account(tmp_path: Path) -> None:
    configuration = loaded(tmp_path, notify("ntfy"))
    assert configuration.findings == ()
    assert configuration.integrations["ntfy"].origin == "none"


def test_a_stored_account_goes_by_its_own_name(tmp_path: Path) -> None:
    drawer = Drawer(family=Entry(kind="telegram", fields={"token": TELEGRAM}))
    configuration = loaded(tmp_path, notify("family"), stored=drawer)
    assert [str(finding) for finding in configuration.findings] == []
    assert (configuration.integrations["family"].kind, configuration.integrations["family"].origin) == (
        "telegram",
        "stored",
    )
    assert TELEGRAM in configuration.secrets


async def test_an_account_of_the_environment_does_not_reach_into_private_networks(
    tmp_path: Path, clock: HandClock
) -> None:
    environ = {**ENVIRON, "TELEGRAM_BASE_URL": "http://127.0.0.1:9"}
    parts = Factory(loaded(tmp_path, notify("telegram"), environ=environ), registry(), clock, Random(1))
    with pytest.raises(Refused, match="private address"):
        await parts.environment().destination("telegram").deliver(Message(to="42", text="hi"))
    await parts.close()


@virtual
async def test_a_notice_an_hour_arrives_once_an_hour_whatever_the_trouble(clock: VirtualClock, tmp_path: Path) -> None:
    fake = FakeTelegram(clock)
    async with fake.serve():
        main = at(fake, "telegram", token=TELEGRAM)
        async with started(loaded(tmp_path, notify("telegram"), main=main), clock):
            for trouble in ((429, "Too Many Requests", {"retry_after": 90}), (502, "Bad Gateway", {})):
                fake.trouble.append(trouble)
                await clock.sleep(3600)
            await clock.sleep(600)
    assert fake.sent == [(42, "Stündlich\n\nthe hour is over 🕐")] * 2
    # the wait that Telegram asked for was kept
    assert fake.seen[1].at - fake.seen[0].at >= 90


@virtual
async def test_every_channel_is_one_word_in_a_step(clock: VirtualClock, tmp_path: Path) -> None:
    discord, ntfy, whatsapp, mail = FakeDiscord(clock), FakeNtfy(clock), FakeWhatsApp(clock), FakeMail(tmp_path)
    async with AsyncExitStack() as stack:
        for server in (discord, ntfy, whatsapp):
            await stack.enter_async_context(server.serve())
        await stack.enter_async_context(mail.serve())
        slack = await stack.enter_async_context(workspace(clock))
        main = f"""
integrations:
  discord: {{kind: discord, token: "{DISCORD}", base_url: "{discord.url}", allow_private_networks: true}}
  ntfy: {{kind: ntfy, base_url: "{ntfy.url}", allow_private_networks: true}}
  slack: {{kind: slack, token: "{SLACK}", base_url: "{slack.url}", allow_private_networks: true}}
  phones: {{kind: whatsapp, token: "{WHATSAPP}", phone_number_id: "{NUMBER}", base_url: "{whatsapp.url}",
    allow_private_networks: true}}
  email: {{kind: email, host: localhost, port: {mail.port}, sender: harken@example.com, username: ana,
    password: "{PASSWORD}", ca_bundle: "{mail.ca_bundle}", allow_private_networks: true}}
"""
        places = {
            "discord": "77",
            "ntfy": "alerts",
            "slack": "#eng",
            "phones": "+4915123456789",
            "email": "a@example.com",
        }
        steps = "".join(
            f'  - {{action: notify, channel: {channel}, to: "{to}", text: "done"}}\n' for channel, to in places.items()
        )
        workflow = f"name: hourly\ntrigger:\n  schedule: {{every: 1h}}\nsteps:\n{steps}"
        async with started(loaded(tmp_path, workflow, main=main), clock):
            await clock.sleep(3700)
    posted = list(slack.channels["C1"].messages.values())
    said: list[list[Any]] = [discord.sent, ntfy.cached, whatsapp.sent, mail.mails, posted]
    assert [len(one) for one in said] == [1] * 5


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"slack"}))
def test_every_field_and_variable_is_in_the_reference(kind: str) -> None:
    page = (ROOT / "docs" / "reference" / "services" / f"{kind}.md").read_text("utf-8")
    plugin = registry()[kind]
    assert plugin.account is not None
    model: type[BaseModel] = plugin.account
    assert [name for name in (*model.model_fields, *plugin.environment) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described_for_forms(kind: str) -> None:
    model = registry()[kind].account
    assert model is not None
    assert [name for name, one in model.model_fields.items() if not one.description] == []
