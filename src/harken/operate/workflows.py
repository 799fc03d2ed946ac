"""Operations on workflows: list, check, run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from harken.operate.context import Context
from harken.operate.idempotency import new_id
from harken.operate.load_and_check_configuration import finding_rows, only_workflows
from harken.operate.output_rows import Plain, plain
from harken.operate.owner_access import visible_rows
from harken.operate.paging import page_by
from harken.store import NewRun

__all__ = ["check", "list_workflows", "run", "show"]


async def list_workflows(context: Context, *, cursor: str = "", limit: int = 0) -> Plain:
    """Workflows by name, with the triggers that start them."""
    starting: dict[str, list[str]] = {}
    for trigger in context.triggers().values():
        for workflow in trigger.workflows:
            starting.setdefault(workflow, []).append(trigger.name)
    rows = [
        {
            "name": name,
            "rev": workflow.rev,
            "description": workflow.description,
            "steps": len(_field(workflow.definition, "steps", [])),
            "triggers": sorted(starting.get(name, [])),
        }
        for name, workflow in context.workflows().items()
    ]
    return page_by(visible_rows(context, "name", rows), cursor, limit)


async def show(context: Context, *, name: str) -> Plain:
    """One workflow with its definition as JSON, and as the file that it could be; secrets are references."""
    from harken.config.yaml.writer import to_yaml

    workflow = context.workflow(name)
    definition = plain(workflow.definition)
    starting = sorted(one.name for one in context.triggers().values() if name in one.workflows)
    return {
        "name": workflow.name,
        "rev": workflow.rev,
        "definition": definition,
        "yaml": to_yaml({"name": workflow.name, **definition}),
        "source": context.loaded.origins.get(f"workflow:{name}", "") if context.loaded else "",
        "triggers": starting,
    }


async def check(context: Context, *, name: str = "") -> Plain:
    """The findings in the files of workflows as they were last loaded."""
    rows = only_workflows(list(finding_rows(context.loaded)), name)
    if name and not rows:
        context.workflow(name)
    return {"items": rows, "next": None}


async def run(context: Context, *, name: str, input: Mapping[str, Any] | None = None) -> Plain:
    """Start a run by hand with this input; it is executed by the controller."""
    workflow = context.workflow(name)
    new = NewRun(
        trigger="",
        workflow=workflow.name,
        workflow_rev=workflow.rev,
        id_key=f"manual:{new_id().hex}",
        input=msgspec.json.encode(input or {}),
    )
    run_id = await context.store.start(new)
    context.nudge()
    return {"id": run_id, "workflow": name}


def _field(definition: Any, name: str, default: Any) -> Any:
    found = definition.get(name) if isinstance(definition, Mapping) else getattr(definition, name, None)
    return default if found is None else found
