"""`triggers.draft`: what a trigger would be that nobody has stored: what is wrong with it, its YAML, and a dry run.

It is checked by what checks rows, and decided by what fires. Nothing is written; a service is read only if asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from harken.errors import Forbidden, HarkenError, Malformed, Misconfigured, NotFound, Refused
from harken.operate.context import Context
from harken.operate.load_and_check_configuration import finding_row, row_compiler
from harken.operate.output_rows import Plain, plain
from harken.operate.owner_access import Ownership
from harken.operate.stored_triggers import find_row, refuse_taken, with_secrets_hidden, workflow_of
from harken.operate.trigger_draft_dry_run import Draft, dry_run, per_hour
from harken.operate.triggers import timeline
from harken.operate.webhooks import PREFIX
from harken.schedule import activations

if TYPE_CHECKING:
    from harken.config.findings import Finding
    from harken.config.stored_trigger_compiler import CompiledRow, RowCompiler, TriggerRow
    from harken.config.yaml.nodes import Node

__all__ = ["draft"]

MOST_EVENTS = 1_000
MOST_HOURS = 744
NEXT = 5
"""So many of the next times of a schedule are shown."""
AHEAD = timedelta(days=366)
UNNAMED = "draft"
FILE = "the draft"
STEPS = "steps"


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A draft after the checks: its fields if they could be read, what it becomes if it can be used, what is wrong."""

    fields: Plain | None = None
    row: Any = None
    found: Any = None
    account: Any = None
    findings: tuple[Plain, ...] = ()
    yaml: str = ""
    steps: str = ""


async def draft(
    context: Context,
    *,
    name: str = "",
    provider: str = "",
    config: Any = None,
    condition: str = "",
    options: Mapping[str, Any] | None = None,
    workflow: Any = None,
    steps: str = "",
    yaml: str = "",
    replaces: str = "",
    events_of: str = "",
    limit: int = 200,
    hours: int = 0,
    read: bool = False,
) -> Plain:
    """What a trigger with these fields, or of this YAML, would be and do. It is not stored.

    `steps` is its workflow as YAML, in place of `workflow`."""
    if not 0 <= limit <= MOST_EVENTS:
        raise Malformed(f"limit must be 0 to {MOST_EVENTS}", fix="Leave it away for 200")
    if not 0 <= hours <= MOST_HOURS:
        raise Malformed(f"hours must be 0 to {MOST_HOURS}", fix="168 is a week")
    if context.loaded is None:
        raise Refused("there is no configuration yet", fix="Begin with: harken init")
    fields = {
        "name": name,
        "provider": provider,
        "config": config,
        "condition": condition,
        "options": dict(options or {}),
        "workflow": workflow,
    }
    compiled = await asyncio.to_thread(_compile, context, fields, steps, yaml, replaces)
    problems = [*compiled.findings, *await _clashes(context, compiled, replaces)]
    answer: Plain = {
        "ok": compiled.found is not None and not any(one["severity"] == "error" for one in problems),
        "row": plain(compiled.fields),
        "yaml": compiled.yaml,
        "steps": compiled.steps,
        "problems": problems,
        **_about(context, compiled),
        "dry_run": None,
        "clauses": [],
        "hours": [],
    }
    if compiled.found is None:
        return answer
    made = Draft(
        trigger=compiled.found.trigger,
        feed=compiled.found.spec.feed,
        query=compiled.found.spec.query,
        account=compiled.account,
        secrets=compiled.found.secrets,
        condition=compiled.row.condition.strip(),
    )
    events_from = context.feed_id(events_of) if events_of else made.feed.name
    answer |= await dry_run(context, made, events_from, limit, read=read)
    if hours:
        answer["hours"] = await per_hour(context, made, events_from, hours)
    return answer


def _compile(context: Context, fields: Mapping[str, Any], steps: str, yaml: str, replaces: str) -> Compiled:
    """Check the draft as a row is checked. Whatever is wrong with it is a finding, and no error."""
    from harken.config.yaml.nodes import to_storable
    from harken.config.yaml.writer import to_yaml

    assert context.loaded is not None
    given, written = dict(fields), None
    if steps.strip():
        read_steps = _read_steps(steps)
        if isinstance(read_steps, tuple):
            return Compiled(fields=given, findings=read_steps, steps=steps)
        written = read_steps
        given["workflow"] = to_storable(written)
    if yaml.strip():
        read = _read_yaml(yaml)
        if isinstance(read, Compiled):
            return read
        # what a pasted block does not have stays as it was
        given = {**read, **{key: given[key] for key in ("name", "workflow") if not read[key]}}
    ownership = Ownership(context, context.principal)
    ownership.admit_fields(replaces or str(given["name"]), given)
    try:
        row = _row(context, given, replaces)
    except Misconfigured as error:
        return Compiled(fields=given, findings=(_problem(error, ["workflow"]),))
    compiler = row_compiler(context.loaded)
    try:
        found, findings = compiler.compile(row)
        if found is not None:
            ownership.admit_row(row, found)
        text = _yaml(compiler, row)
    except (Forbidden, NotFound):
        raise
    except HarkenError as error:
        return Compiled(fields=given, row=row, findings=(_problem(error, []),))
    return Compiled(
        fields=given,
        row=row,
        found=found,
        account=_account(compiler, found),
        findings=tuple(_located(one, written) for one in _rows_of(findings)),
        yaml=text,
        steps=to_yaml(given["workflow"]) if isinstance(given["workflow"], dict) else "",
    )


def _read_steps(text: str) -> Node | tuple[Plain, ...]:
    """The workflow of a draft, written as YAML; or what is wrong with the text."""
    from harken.config.findings import Report
    from harken.config.yaml.nodes import Table
    from harken.config.yaml.parser import parse

    report = Report()
    tree = parse(text.encode(), STEPS, report)
    if tree is None or report.failed:
        return tuple({**row, "path": ["steps"]} for row in _rows_of(report.findings)) or (NO_STEPS,)
    return tree if isinstance(tree, Table) else (NO_STEPS,)


def _located(finding: Plain, written: Node | None) -> Plain:
    """The finding with its line in the steps as they were written, if it is about them."""
    from harken.config.yaml.nodes import locate

    path = tuple(finding["path"])
    if written is None or not path or path[0] in ("name", "trigger"):
        return finding
    place = locate(written, path)
    return finding | {"line": place.line, "column": place.column}


def _row(context: Context, given: Mapping[str, Any], replaces: str) -> TriggerRow:
    from harken.config.stored_trigger_compiler import TriggerRow

    now = context.clock.now()
    return TriggerRow(
        id=replaces or UNNAMED,
        user_id=context.principal.owner,
        name=given["name"] or UNNAMED,
        provider=given["provider"],
        config=given["config"],
        condition=given["condition"],
        options=given["options"],
        workflow=workflow_of(given["workflow"]),
        created_at=now,
        updated_at=now,
    )


def _account(compiler: RowCompiler, found: CompiledRow | None) -> Any:
    return compiler.accounts.get(found.spec.feed.integration) if found is not None else None


def _yaml(compiler: RowCompiler, row: TriggerRow) -> str:
    """The workflow file that the draft stands for; a secret that stands openly in it is not shown."""
    from harken.config.stored_trigger_compiler import as_file
    from harken.config.trigger_schema import KINDS
    from harken.config.yaml.writer import to_yaml

    if row.provider not in KINDS:
        return to_yaml(as_file(row))
    return to_yaml(as_file(with_secrets_hidden(row, compiler.secret_texts(row))))


def _read_yaml(text: str) -> dict[str, Any] | Compiled:
    """The fields of the row that a file, or its `trigger:` block alone, stands for; or what is wrong with the text."""
    from harken.config.findings import Report
    from harken.config.stored_trigger_compiler import from_file
    from harken.config.trigger_schema import KINDS
    from harken.config.yaml.nodes import to_storable
    from harken.config.yaml.parser import parse

    report = Report()
    tree = parse(text.encode(), FILE, report)
    if tree is None or report.failed:
        return Compiled(findings=_rows_of(report.findings) or (_wrong("there is nothing in it", "Paste a trigger"),))
    value = to_storable(tree)
    if not isinstance(value, dict):
        return Compiled(findings=(_wrong("it is no workflow file", "Paste one with trigger: and steps:"),))
    if "trigger" not in value and any(kind in value for kind in KINDS):
        value = {"trigger": value}
    if not isinstance(value.get("trigger") or {}, dict):
        return Compiled(findings=(_wrong("trigger: is not a mapping", "Write trigger: with a block below it"),))
    try:
        read = from_file(value)
    except Misconfigured as error:
        return Compiled(findings=(_problem(error, ["trigger"]),))
    return {**read, "name": str(read["name"] or ""), "condition": str(read["condition"] or "")}


async def _clashes(context: Context, compiled: Compiled, replaces: str) -> list[Plain]:
    """What is wrong with the draft beside others: its name or its webhook is taken."""
    if compiled.row is None or compiled.fields is None:
        return []
    if not compiled.fields["name"]:
        return [_problem(Misconfigured("it has no name yet", fix="Give it one"), ["name"], code="missing")]
    document = await find_row(context, replaces) if replaces else None
    own = str(document.value["name"]) if document is not None else ""
    problems: list[Plain] = []
    if compiled.row.name != own:
        try:
            await refuse_taken(context, compiled.row.name)
        except Refused as error:
            problems.append(_problem(error, ["name"], code="clash"))
    path = compiled.found.spec.feed.path if compiled.found is not None else ""
    taken = context.loaded.feed_at(path) if path and context.loaded is not None else None
    mine = context.triggers()[own].feed if own in context.triggers() else ""
    if taken is not None and mine != taken.name:
        problems.append(
            _problem(
                Refused(f"the webhook {path} is taken", fix="Give it another id"),
                ["trigger", "webhook", "id"],
                code="clash",
            )
        )
    return problems


def _about(context: Context, compiled: Compiled) -> Plain:
    """What is known of the draft without any event: its feed, its address, its next times, how it gathers."""
    if compiled.found is None:
        return {"feed": "", "feed_id": "", "way": "", "address": "", "next": [], "timeline": []}
    feed, now = compiled.found.spec.feed, context.clock.now()
    times = activations(feed.schedule, now, now + AHEAD, NEXT) if compiled.row.provider == "schedule" else []
    return {
        "feed": context.feed_label(feed.name) if feed.name in context.feeds() else feed.display_name,
        "feed_id": feed.name,
        "way": feed.way,
        "address": f"{PREFIX}{feed.path}" if feed.path else "",
        "next": [plain(at) for at in times],
        "timeline": timeline(compiled.found.trigger),
    }


def _rows_of(findings: Sequence[Finding]) -> tuple[Plain, ...]:
    return tuple(finding_row(one) for one in findings)


def _wrong(message: str, fix: str) -> Plain:
    return _problem(Misconfigured(message, fix=fix), [])


def _problem(error: HarkenError, path: list[str | int], code: str = "invalid") -> Plain:
    where = ".".join(map(str, path))
    named = where and not error.message.startswith(f"{where}:")
    said = f"{where}: {error.message}" if named else error.message
    return {
        "severity": "error",
        "code": code,
        "file": FILE,
        "line": 1,
        "column": 1,
        "path": path,
        "message": error.message,
        "fix": error.fix,
        "excerpt": "",
        "text": f"{said}. {error.fix}" if error.fix else said,
    }


NO_STEPS = _problem(Misconfigured("there are no steps", fix="Write steps: with a list below it"), ["steps"], "missing")
