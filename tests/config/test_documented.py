"""Every setting and every code of a finding is in the reference, with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from harken.config import accounts, feeds, schedules, settings, streams, trigger_schema, workflows
from harken.config.findings import CODES, Code
from harken.config.model_validation import Strict
from harken.config.pollers import delivery_workflows
from harken.config.pollers import schema as writing
from harken.config.settings import Settings
from harken.config.trackers import schema as tickets
from harken.durations import format_duration

REFERENCE = Path(__file__).parents[2] / "docs/reference"
PAGE = "\n".join((REFERENCE / name).read_text() for name in ("configuration.md", "pollers.md"))
SECTIONS: dict[str, type[BaseModel]] = {
    "server": settings.Server,
    "oidc": settings.Oidc,
    "metrics": settings.Metrics,
    "tracing": settings.Tracing,
    "log": settings.Log,
    "retention": settings.Retention,
    "on_failure": settings.OnFailure,
    "on_failure.notify": settings.NotifyBlock,
    "outcome_webhooks": settings.OutcomeWebhook,
    "http": settings.Http,
    "models": settings.Models,
    "models.providers.NAME": settings.Provider,
    "models.prices.NAME": settings.Price,
    "steps": settings.Steps,
    "services": settings.Services,
    "files": settings.Files,
    "agent": settings.Agent,
    "agent.queue": settings.Queue,
    "integrations": accounts.Integration,
    "integrations.NAME.backoff": accounts.Backoff,
    "feeds": feeds.NamedFeedBlock,
    "trackers": tickets.TrackerBlock,
    "polling": tickets.PollingBlock,
    "trust": tickets.TrustBlock,
    "projects": tickets.ProjectBlock,
    "source": tickets.SourceBlock,
    "resolution": tickets.ResolutionBlock,
    "github_trigger": tickets.TicketTriggerBlock,
    "Workflow files": workflows.WorkflowFile,
    "trigger": trigger_schema.TriggerBlock,
    "trigger.poll": trigger_schema.PollBlock,
    "trigger.webhook": trigger_schema.WebhookBlock,
    "trigger.stream": streams.StreamBlock,
    "trigger.file": trigger_schema.FileBlock,
    "trigger.schedule": schedules.ScheduleBlock,
    "trigger.event": trigger_schema.EventBlock,
    "trigger.gather": trigger_schema.GatherBlock,
    "trigger.gather.digest": trigger_schema.DigestBlock,
    "trigger.gather.debounce": trigger_schema.DebounceBlock,
    "trigger.gather.join": trigger_schema.JoinBlock,
    "trigger.gather.join.parts": trigger_schema.PartBlock,
    "trigger.gather.throttle": trigger_schema.ThrottleBlock,
    "trigger.gather.dedupe": trigger_schema.DedupeBlock,
    "trigger.quiet_hours": trigger_schema.QuietHours,
    "trigger.budget": trigger_schema.BudgetBlock,
    "pollers": writing.PollersBlock,
    "pollers.jobs": writing.JobBlock,
    "schedule": schedules.JobScheduleBlock,
    "config": delivery_workflows.DeliveryBlock,
    "deliver": delivery_workflows.OutletBlock,
}
IN_PARTS = {
    Settings,
    feeds.FeedBlock,
    tickets.RoutingBlock,
    trigger_schema.DispatchBlock,
    trigger_schema.CommonBlock,
    trigger_schema.EmptyBlock,
}


def rows(section: str) -> dict[str, str]:
    text = re.split(r"^##+ ", PAGE, flags=re.MULTILINE)
    found = next(part for part in text if part.partition("\n")[0] == section)
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\|", found, flags=re.MULTILINE))


def written(field: FieldInfo) -> set[str]:
    """The ways in which a default may be put down."""
    value: Any = field.default
    if isinstance(value, bool):
        return {f"`{str(value).lower()}`"}
    if isinstance(value, float):
        return {f"`{format_duration(value)}`", f"`{value:g}`"}
    return {f"`{value}`"}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_in_the_reference(section: str) -> None:
    assert set(rows(section)) == set(SECTIONS[section].model_fields)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_default_is_in_the_reference(section: str) -> None:
    shown = rows(section)
    fields = SECTIONS[section].model_fields.items()
    plain = {
        name: field
        for name, field in fields
        if isinstance(field.default, (bool, int, float, str)) and field.default != ""
    }
    assert [name for name, field in plain.items() if shown[name] not in written(field)] == []


def test_every_model_that_people_write_has_its_section() -> None:
    def below(model: type[BaseModel]) -> set[type[BaseModel]]:
        return {model}.union(*(below(sub) for sub in model.__subclasses__()))

    ours = {model for model in below(Strict) if model.__module__.startswith("harken.config")} - {Strict}
    assert ours - IN_PARTS == set(SECTIONS.values())


def test_every_section_is_in_the_reference() -> None:
    assert all(re.search(rf"^## {name}$", PAGE, flags=re.MULTILINE) for name in Settings.model_fields)


def test_every_code_is_in_the_reference() -> None:
    assert set(CODES) == set(get_args(Code))
    assert all(f"| `{code}` | {meaning} |" in PAGE for code, meaning in CODES.items())


def test_readme_installs_the_command_before_it_is_used() -> None:
    page = (REFERENCE.parents[1] / "README.md").read_text()
    assert 0 < page.index("pip install harken\n") < page.index("harken demo\n") < page.index("harken start\n")
    assert ".venv/bin/harken" not in page


def test_mail_starts_the_controller_before_a_job_is_run_at_once() -> None:
    page = (REFERENCE.parent / "how-to" / "mail.md").read_text()
    assert 0 < page.index("harken integrations telegram configure") < page.index("harken start\n")
    assert page.index("harken start\n") < page.index("harken pollers run ana_leads")
