"""Every kind of step by its name. The empty name is for actions of services, such as `slack.post`."""

from __future__ import annotations

from collections.abc import Mapping

from harken.run.plan import StepKind
from harken.run.steps.agent import AGENT
from harken.run.steps.branch import FILTER, IF, SWITCH
from harken.run.steps.foreach_and_parallel import FOREACH, PARALLEL
from harken.run.steps.http_notify_and_action import ACTION, HTTP, NOTIFY
from harken.run.steps.llm import LLM
from harken.run.steps.python import PYTHON
from harken.run.steps.shell import SHELL
from harken.run.steps.subworkflow import WORKFLOW
from harken.run.steps.ticket import TICKET_ASK, TICKET_COMMENT, TICKET_PULL_REQUEST, TICKET_TRANSITION
from harken.run.steps.transform import EMIT, TRANSFORM
from harken.run.steps.wait_and_approve import APPROVE, WAIT

__all__ = ["KINDS"]

_ALL = (
    ACTION, AGENT, APPROVE, EMIT, FILTER, FOREACH, HTTP, IF, LLM, NOTIFY, PARALLEL, PYTHON, SHELL, SWITCH, TRANSFORM,
    WAIT, WORKFLOW, TICKET_ASK, TICKET_COMMENT, TICKET_PULL_REQUEST, TICKET_TRANSITION,
)  # fmt: skip

KINDS: Mapping[str, StepKind] = {kind.name: kind for kind in _ALL}
