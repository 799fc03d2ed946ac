"""What people write about trackers and projects."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator

from harken.config.model_validation import Invalid, Strict
from harken.config.settings import LabelMap, LabelPrefix

__all__ = [
    "IGNORED",
    "Hook",
    "PollingBlock",
    "ProjectBlock",
    "ResolutionBlock",
    "RoutingBlock",
    "SourceBlock",
    "TicketTriggerBlock",
    "TrackerBlock",
    "TrustBlock",
    "check_name",
    "kind_of",
]

IGNORED = frozenset(
    {"agent", "coding_principles_path", "comment_keyword", "assignee_name", "close_transition_name", "extra_fields"}
)
"""Settings that users of the older format have, and that Harken has no use for."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}", re.ASCII)
_SPELLINGS = {"azuredevops": "azure_devops", "azure": "azure_devops", "azurerepos": "azure_devops"}


def kind_of(type: str) -> str:
    """The service that a `type:` means: `AzureDevOps`, `azure_devops` and `GitHub` are written by people."""
    kind = re.sub(r"[\s-]+", "_", type.strip()).casefold()
    return _SPELLINGS.get(kind, kind)


def check_name(name: str) -> bool:
    """Whether a tracker or project may be called so: names are part of addresses and of the names of triggers."""
    return _NAME.fullmatch(name) is not None


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_as_text), Field(min_length=1)]
Names = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_as_list)]


class PollingBlock(Strict):
    """How often a tracker is asked. It may stand on the tracker or on a project."""

    enabled: bool = False
    interval_seconds: float = Field(default=60.0, gt=0, le=86_400)
    jitter_percent: float = Field(default=10.0, ge=0, le=50)


class TrustBlock(Strict):
    """Who may start a pipeline by putting its label on a ticket."""

    label: Literal["write", "triage", "anyone"] | list[str] = "write"
    bots: Names = Field(default_factory=list)
    untrusted: Literal["skip", "hold"] = "skip"
    text: Literal["as_labelled", "now"] = "as_labelled"

    @field_validator("label", mode="before")
    @classmethod
    def _one_name_is_a_mistake(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in ("write", "triage", "anyone"):
            raise Invalid("must be write, triage, anyone or a list of names", f"For one person write [{value}]")
        return value


class ResolutionBlock(Strict):
    """Which tickets of a tracker belong to a project: those that have all of what is set."""

    tag: str = ""
    area_path: str = ""
    repo: str = ""


class RoutingBlock(Strict):
    """Which pipeline a ticket starts."""

    pipeline_from_label: LabelMap | None = None
    default_pipeline: str | None = Field(default=None, min_length=1)


class TicketTriggerBlock(RoutingBlock):
    """`github_trigger`, `gitlab_trigger`, `azuredevops_trigger` or `jira_trigger` of a project."""

    trigger_statuses: Names | None = None
    open_states: Names | None = None
    done_status: str | None = None
    failed_status: str | None = None
    secret: SecretStr | None = None
    assignee_name: Any = None
    comment_keyword: Any = None


class SourceBlock(Strict):
    """Where the code of a project is."""

    type: str | None = None
    url: str | None = None
    path: str | None = None
    default_branch: str = ""
    auth: Any = None


class TrackerBlock(RoutingBlock):
    """A tracker under `trackers:`, or `tickets:` of a project. Fields of the service's account may stand here."""

    type: str = Field(min_length=1)
    url: str | None = None
    organization: Text | None = None
    project: Text | None = None
    integration: str | None = Field(default=None, min_length=1)
    auth: Any = None
    allow_private_networks: bool | None = None
    open_states: Names | None = None
    trigger_statuses: Names | None = None
    done_status: str | None = None
    failed_status: str | None = None
    webhook_secret: SecretStr | None = None
    allow_unsigned: bool = False
    doorbell: bool = False
    zero_match_comment: bool = False
    label_prefix: LabelPrefix | None = None
    flood_limit: int = Field(default=100, ge=0)
    trust: TrustBlock | None = None
    polling: PollingBlock | None = None
    close_transition_name: Any = None
    extra_fields: Any = None


class ProjectBlock(RoutingBlock):
    """A project under `projects:`."""

    tracker: str | None = Field(default=None, min_length=1)
    tickets: Any = None
    source: SourceBlock | None = None
    pipeline: str | None = Field(default=None, min_length=1)
    resolution: ResolutionBlock | None = None
    github_trigger: TicketTriggerBlock | None = None
    gitlab_trigger: TicketTriggerBlock | None = None
    azuredevops_trigger: TicketTriggerBlock | None = None
    jira_trigger: TicketTriggerBlock | None = None
    trust: TrustBlock | None = None
    polling: PollingBlock | None = None
    agent: Any = None
    coding_principles_path: Any = None


class Hook(BaseModel):
    """What the webhooks of a tracker are verified with; without a secret they are not."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    secret: SecretStr | None = None
