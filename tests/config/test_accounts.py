"""Where an account comes from: the file, what is stored, the environment, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from harken.config.loaded import Account, Loaded
from harken.config.reload_plan import carry_over, plan
from harken.errors import Misconfigured
from harken.source import Act, Plugin
from tests.config.makers import PLUGINS, Built, Forbid, lines, read, workflow

TOKEN = "st0red-token-abcdef"


class DeskAccount(Forbid):
    pat: SecretStr
    email: str = ""
    base_url: str = "https://desk.example"


class Comment(BaseModel):
    text: str


async def comment(call: Any) -> None: ...


DESK = Plugin(
    kind="desk",
    account=DeskAccount,
    source=Built,
    actions={"comment": Act(params=Comment, run=comment)},
    aliases=("helpdesk",),
    environment={"DESK_TOKEN": "pat"},
)
WITH_DESK: Mapping[str, Plugin] = MappingProxyType({**PLUGINS, "desk": DESK})


@dataclass
class Entry:
    kind: str
    fields: Mapping[str, Any]


@dataclass
class Safe:
    """Stored accounts. `locked`: none can be read."""

    entries: dict[str, Entry] = field(default_factory=dict)
    locked: bool = False
    asked: list[str] = field(default_factory=list)

    def accounts(self) -> Mapping[str, str]:
        return {name: entry.kind for name, entry in self.entries.items()}

    def account(self, name: str) -> Entry | None:
        self.asked.append(name)
        if self.locked:
            raise Misconfigured("it is sealed with another key", fix="Set HARKEN_ENCRYPTION_KEY")
        return self.entries.get(name)


class Broken(Safe):
    def accounts(self) -> Mapping[str, str]:
        raise Misconfigured("others may read it", fix="chmod 600 it")


def safe(**entries: Mapping[str, Any]) -> Safe:
    return Safe({name.replace("_", "-"): Entry("desk", fields) for name, fields in entries.items()})


def polls(integration: str) -> str:
    return workflow("w", f"poll: {{integration: {integration}}}")


def comments(account: str) -> str:
    return workflow("w", steps=f"- {{id: c, action: {account}.comment, text: hi}}")


def given(directory: Path, main: str = "", flow: str = "", **more: Any) -> Loaded:
    files = {"harken.yaml": main, **({"workflows/w.yaml": flow} if flow else {})}
    return read(directory, files, plugins=WITH_DESK, **more)


def errors(loaded: Loaded) -> list[str]:
    return [str(finding) for finding in loaded.findings if finding.severity == "error"]


def pat(account: Account) -> str:
    return str(account.model.pat.get_secret_value()) if isinstance(account.model, DeskAccount) else ""


def test_a_kind_that_is_not_listed_takes_what_is_stored(tmp_path: Path) -> None:
    loaded = given(tmp_path, flow=polls("desk"), stored=safe(desk={"pat": TOKEN, "email": "a@b.c"}))
    account = loaded.integrations["desk"]
    assert (pat(account), account.origin) == (TOKEN, "stored")
    assert TOKEN in loaded.secrets


def test_what_is_stored_wins_over_the_environment_and_is_asked_first(tmp_path: Path) -> None:
    environ = {"DESK_TOKEN": "fr0m-environment"}
    assert pat(given(tmp_path, flow=polls("desk"), environ=environ).integrations["desk"]) == "fr0m-environment"
    loaded = given(tmp_path, flow=polls("desk"), environ=environ, stored=safe(desk={"pat": TOKEN}))
    assert pat(loaded.integrations["desk"]) == TOKEN


def test_a_stored_account_is_used_by_its_own_name(tmp_path: Path) -> None:
    loaded = given(tmp_path, flow=polls("desk-eu"), stored=safe(desk_eu={"pat": TOKEN, "base_url": "https://eu.desk"}))
    account = loaded.integrations["desk-eu"]
    assert (account.kind, account.base_url, pat(account)) == ("desk", "https://eu.desk", TOKEN)
    assert errors(loaded) == []


def test_an_alias_finds_what_is_stored_for_the_kind(tmp_path: Path) -> None:
    loaded = given(tmp_path, flow=polls("helpdesk"), stored=safe(desk={"pat": TOKEN}))
    assert pat(loaded.integrations["desk"]) == TOKEN


def test_the_quota_is_not_named_after_the_secret_and_stays_when_it_changes(tmp_path: Path) -> None:
    one = given(tmp_path, flow=polls("desk"), stored=safe(desk={"pat": TOKEN}))
    two = given(tmp_path, flow=polls("desk"), stored=safe(desk={"pat": "an0ther-token"}))
    assert one.integrations["desk"].credential == two.integrations["desk"].credential
    assert one.generation == two.generation
    other = given(tmp_path, flow=polls("desk-eu"), stored=safe(desk_eu={"pat": TOKEN}))
    assert other.integrations["desk-eu"].credential != one.integrations["desk"].credential


def test_a_changed_secret_is_a_change_of_the_integration(tmp_path: Path) -> None:
    one = given(tmp_path, flow=polls("desk"), stored=safe(desk={"pat": TOKEN}))
    two = given(tmp_path, flow=polls("desk"), stored=safe(desk={"pat": "an0ther-token"}))
    assert plan(one, two).replace == ("integration:desk",)
    assert TOKEN in carry_over(one, two).secrets


def test_an_entry_may_leave_its_secret_to_what_is_stored(tmp_path: Path) -> None:
    main = "integrations: {eu: {kind: desk, base_url: 'https://eu.desk', rate_limit: 5/s}}"
    loaded = given(tmp_path, main, polls("eu"), stored=safe(eu={"pat": TOKEN, "email": "a@b.c", "base_url": "x"}))
    account = loaded.integrations["eu"]
    assert (pat(account), account.base_url, account.rate_limit) == (TOKEN, "https://eu.desk", 5)
    assert account.origin == "stored"
    assert getattr(account.model, "email", "") == "a@b.c"


def test_an_entry_with_a_secret_of_its_own_is_not_mixed_with_what_is_stored(tmp_path: Path) -> None:
    stored = safe(eu={"pat": TOKEN, "email": "a@b.c"})
    loaded = given(tmp_path, "integrations: {eu: {kind: desk, pat: own-t0ken-123}}", stored=stored)
    account = loaded.integrations["eu"]
    assert (pat(account), getattr(account.model, "email", ""), account.origin) == ("own-t0ken-123", "", "config")
    assert stored.asked == []


def test_what_is_stored_for_another_kind_is_not_taken(tmp_path: Path) -> None:
    loaded = given(tmp_path, "integrations: {desk: {kind: pagerduty}}", stored=safe(desk={"pat": TOKEN}))
    assert errors(loaded) == [
        "harken.yaml:1:22: integrations.desk.token: is missing. Add token:, or run: harken integrations desk configure"
    ]


def test_an_account_that_cannot_be_opened_is_an_error_there_and_not_the_environments(tmp_path: Path) -> None:
    stored = safe(desk={"pat": TOKEN})
    stored.locked = True
    loaded = given(tmp_path, flow=polls("desk"), stored=stored, environ={"DESK_TOKEN": "fr0m-environment"})
    assert errors(loaded) == [
        "workflows/w.yaml:2:31: trigger.poll.integration: the stored account desk cannot be used: "
        "it is sealed with another key. Set HARKEN_ENCRYPTION_KEY"
    ]


def test_a_store_of_accounts_that_cannot_be_read_stops_only_what_needs_it(tmp_path: Path) -> None:
    environ = {"PAGERDUTY_TOKEN": "x"}
    main = """
        integrations: {mine: {kind: desk, pat: own-t0ken-123}}
        feeds: {news: {integration: json, query: {url: 'https://x.example'}}}
        """
    loaded = given(tmp_path, main, polls("pagerduty"), stored=Broken(), environ=environ)
    assert errors(loaded) == [
        "workflows/w.yaml:2:31: trigger.poll.integration: stored accounts cannot be read: "
        "others may read it. chmod 600 it"
    ]
    assert set(loaded.integrations) == {"mine", "json"}


def test_an_unknown_name_gets_the_nearest_stored_one(tmp_path: Path) -> None:
    loaded = given(tmp_path, flow=polls("desk-ee"), stored=safe(desk_eu={"pat": TOKEN}))
    assert "Did you mean desk-eu?" in errors(loaded)[0]


@pytest.mark.parametrize("account", ["desk", "desk-eu"])
def test_the_account_of_a_step_is_looked_up(tmp_path: Path, account: str) -> None:
    stored = safe(desk={"pat": TOKEN}, desk_eu={"pat": TOKEN})
    loaded = given(tmp_path, flow=comments(account), stored=stored)
    assert errors(loaded) == []
    assert pat(loaded.integrations[account]) == TOKEN


def test_a_step_without_an_account_is_an_error_at_its_action(tmp_path: Path) -> None:
    assert errors(given(tmp_path, flow=comments("desk"))) == [
        "workflows/w.yaml:4:21: steps[0].action: desk has no account. "
        "Run: harken integrations desk configure; or set DESK_TOKEN"
    ]


def test_accounts_of_steps_in_steps_are_looked_up_and_data_is_not_taken_for_one(tmp_path: Path) -> None:
    steps = """
name: w
steps:
  - {if: 'true', then: [{id: a, action: desk-eu.comment, text: hi}]}
  - {id: s, action: switch, on: x, cases: {x: [{id: b, action: desk-us.comment, text: hi}]}}
  - {id: p, action: parallel, branches: [[{id: c, action: desk-ch.comment, text: hi}]]}
  - {id: h, action: http, url: 'https://x.example', json: {type: desk.comment}}
"""
    stored = safe(desk_eu={"pat": "a"}, desk_us={"pat": "b"}, desk_ch={"pat": "c"})
    loaded = given(tmp_path, flow=steps, stored=stored)
    assert errors(loaded) == []
    assert set(loaded.integrations) == {"desk-eu", "desk-us", "desk-ch"}


def test_a_workflow_that_keeps_its_old_version_keeps_the_accounts_of_its_steps(tmp_path: Path) -> None:
    old = given(tmp_path, flow=comments("desk"), stored=safe(desk={"pat": TOKEN}))
    new = given(tmp_path, flow=comments("desk"), stored=safe())
    assert "workflow:w" in new.refused
    assert pat(carry_over(old, new).integrations["desk"]) == TOKEN


def test_an_account_that_nothing_uses_is_looked_up_when_it_is_wanted(tmp_path: Path) -> None:
    stored = safe(desk_eu={"pat": TOKEN})
    assert given(tmp_path, stored=stored).integrations == {}
    assert stored.asked == []
    assert pat(given(tmp_path, stored=stored, wanted=("desk-eu",)).integrations["desk-eu"]) == TOKEN
    assert "integration:nothing" in given(tmp_path, stored=stored, wanted=("nothing",)).refused


def test_no_secret_stands_in_what_is_kept_or_shown(tmp_path: Path) -> None:
    loaded = given(tmp_path, flow=polls("desk"), stored=safe(desk={"pat": TOKEN}))
    assert TOKEN not in repr(loaded) + str(loaded.definitions()) + str(lines(loaded.findings))


@pytest.mark.parametrize("tail", ["u:passw0rd@host/api", "u@host", "host/api?key=passw0rd", "host/#passw0rd"])
def test_an_address_holds_no_password_and_no_query(tmp_path: Path, tail: str) -> None:
    loaded = given(tmp_path, f"integrations:\n  d: {{kind: desk, pat: {TOKEN}, base_url: 'https://{tail}'}}\n")
    (error,) = errors(loaded)
    assert "no user, password or query" in error
    assert "passw0rd" not in error


def test_the_secrets_of_settings_are_known(tmp_path: Path) -> None:
    models = "models: {default: 'openai:x', providers: {openai: {api_key: sk-0penai-abcdef}}}\n"
    loaded = given(tmp_path, f"http: {{proxy: 'http://u:pr0xy%2Fpass@proxy.example:3128'}}\n{models}")
    assert {"sk-0penai-abcdef", "pr0xy/pass"} <= loaded.secrets
