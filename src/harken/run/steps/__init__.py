"""Every kind of step by its name. The empty name stands for services' own actions, `kind.action`."""

from __future__ import annotations

from collections.abc import Mapping

from harken.run.plan import Kind
from harken.run.steps.call import ACTION, HTTP, NOTIFY
from harken.run.steps.choose import FILTER, IF, SWITCH
from harken.run.steps.llm import LLM
from harken.run.steps.pause import APPROVE, WAIT
from harken.run.steps.repeat import FOREACH, PARALLEL
from harken.run.steps.shell import SHELL
from harken.run.steps.subrun import WORKFLOW
from harken.run.steps.transform import EMIT, TRANSFORM

__all__ = ["KINDS"]

_ALL = (
    ACTION, APPROVE, EMIT, FILTER, FOREACH, HTTP, IF, LLM, NOTIFY, PARALLEL, SHELL, SWITCH, TRANSFORM, WAIT, WORKFLOW,
)  # fmt: skip

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}
