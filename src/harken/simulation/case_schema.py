"""What a file of test cases may say. Unknown keys are errors; `harken.simulation.read_test_cases` reads the files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, Field, model_validator

from harken.config.model_validation import Invalid, Strict
from harken.config.settings import Duration
from harken.durations import parse_duration
from harken.errors import Misconfigured
from harken.simulation.script import TicketVerb

__all__ = [
    "FAULTS",
    "MOST_REPLICAS",
    "AnswerBlock",
    "CaseBlock",
    "CasesFile",
    "ExpectBlock",
    "GivenBlock",
    "RunBlock",
    "SourceBlock",
    "StepBlock",
    "VerdictBlock",
]

FAULTS = {
    "429": "rate_limited",
    "outage": "unavailable",
    "offline": "offline",
    "timeout": "timeout",
    "unauthorized": "forbidden",
    "garbage": "garbage",
}
KINDS = ("event", "ticket", "fault", "crash", "lock", "restart", "freeze", "cut", "sleep", "clock", "wait")
MOST_REPLICAS = 20
OUTCOMES = Literal["fired", "filtered", "duplicate", "before_start", "gathered", "held", "skipped", "error"]


def _signed(value: object) -> float:
    text = value if isinstance(value, str) else ""
    try:
        seconds = parse_duration(text.lstrip("+-"))
    except Misconfigured as error:
        raise Invalid(error.message, "Write it like -30m or 2h") from None
    return -seconds if text.startswith("-") else seconds


def _text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_text)]
FaultName = Annotated[Literal["429", "outage", "offline", "timeout", "unauthorized", "garbage"], BeforeValidator(_text)]
SignedDuration = Annotated[float, BeforeValidator(_signed)]


class GivenBlock(Strict):
    """One thing that happens: exactly one of the KINDS. `replica` says which of several it befalls; the first is 1."""

    event: dict[str, Any] | None = None
    ticket: Text | None = None
    fault: FaultName | None = None
    crash: str | bool | None = None
    lock: str | bool | None = None
    restart: Duration | None = None
    freeze: str | bool | None = None
    cut: str | bool | None = None
    sleep: Duration | None = None
    clock: SignedDuration | None = None
    wait: Duration | None = None
    at: Duration | None = None
    trigger: str = ""
    feed: str = ""
    subject: Text = ""
    key: Text = ""
    state: Text | None = None
    type: str = ""
    late: SignedDuration = 0.0
    undated: bool = False
    gone: Duration | None = None
    times: int = Field(1, ge=1, le=10_000)
    lasts: Duration = Field(60.0, alias="for")
    retry_after: Duration | None = None
    after: bool = False
    skip: int = Field(0, ge=0)
    down: Duration = 0.0
    verbs: int = Field(1, ge=1)
    replica: int = Field(1, ge=1, le=MOST_REPLICAS)
    does: TicketVerb = "open"
    labels: list[Text] = Field(default_factory=list)
    tracker: str = ""
    project: str = ""
    webhooks: int = Field(1, ge=0, le=10)
    lag: Duration = 0.0

    @model_validator(mode="after")
    def _one_kind(self) -> GivenBlock:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            message = f"has {' and '.join(given)}" if given else "says nothing that happens"
            raise Invalid(message, f"Write exactly one of {', '.join(KINDS)}")
        return self


class SourceBlock(Strict):
    """How the stand-in of a polled source shows its items."""

    view: Literal["log", "listing", "since", "forward"] = "log"
    page_size: int = Field(100, ge=1)


class AnswerBlock(Strict):
    """What stand-ins answer to the calls of an action, or of a step."""

    action: str = ""
    step: str = ""
    answer: Any = None
    status: int = 200
    error: Text = ""
    retry_after: Duration | None = None
    times: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _of_something(self) -> AnswerBlock:
        if not (self.action or self.step):
            raise Invalid("names neither an action nor a step", "Add action: slack.post, or step: with its id")
        return self


class StepBlock(Strict):
    """What is expected of one step of a run."""

    action: str | None = None
    status: Literal["ok", "failed", "skipped", "waiting"] | None = None
    given: Any = Field(None, alias="with")
    output: Any = None
    error: str | None = None
    calls: int | None = Field(None, ge=0)


class RunBlock(Strict):
    """What is expected of one run."""

    workflow: str | None = None
    trigger: str | None = None
    status: str | None = None
    events: list[Text] | None = None
    input: Any = None
    output: Any = None
    error: str | None = None
    steps: dict[str, StepBlock] = Field(default_factory=dict)


class VerdictBlock(Strict):
    """What is expected to be decided about one event for one trigger."""

    event: Text = ""
    trigger: str = ""
    outcome: OUTCOMES | None = None
    reason: str | None = None
    clause: str | None = None


class CallBlock(Strict):
    """One call outside."""

    action: str | None = None
    step: str | None = None
    given: Any = Field(None, alias="with")


class ExpectBlock(Strict):
    """What must be so at the end. What is not mentioned is not compared."""

    runs: int | list[RunBlock] | None = None
    verdicts: list[VerdictBlock] = Field(default_factory=list)
    calls: int | list[CallBlock] | None = None
    lost: int | None = None
    doubled: int | None = None
    mislabelled: int | None = None


class CaseBlock(Strict):
    """One case."""

    name: str = Field(min_length=1)
    start: AwareDatetime | None = None
    seed: int = 0
    first_read: Literal["before", "with"] = "before"
    replicas: int = Field(1, ge=1, le=MOST_REPLICAS)
    trigger: str = ""
    sources: dict[str, SourceBlock] = Field(default_factory=dict)
    given: list[GivenBlock] = Field(default_factory=list)
    lasts: Duration = Field(0.0, alias="for")
    answers: list[AnswerBlock] = Field(default_factory=list)
    expect: ExpectBlock

    @model_validator(mode="after")
    def _enough_replicas(self) -> CaseBlock:
        for given in self.given:
            if given.replica > self.replicas or (self.replicas == 1 and (given.freeze or given.cut)):
                needed = max(2, given.replica)
                raise Invalid(f"something befalls one of {needed} replicas", f"Add replicas: {needed} to the case")
        return self


class CasesFile(Strict):
    """A file of cases. `environment` has variables for the configuration, which win over those that are set."""

    environment: dict[str, Text] = Field(default_factory=dict)
    cases: list[CaseBlock]
