"""JSON Schema of the files that people write, for editors: what there is to complete, and which keys do not exist.

Made of the same models that `config check` uses. A schema cannot know everything: any value may be a reference
(`${NAME}`) or a template, and conditions are text to it. So it accepts whatever the check accepts, and more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harken.errors import Malformed
from harken.operate.context import Context
from harken.operate.key_descriptions import describe
from harken.operate.output_rows import Plain
from harken.suggest import suggest_fix

if TYPE_CHECKING:
    from pydantic import BaseModel

    from harken.source import Plugin

__all__ = ["FILES", "OFFERED", "file_schema", "schema", "write_schemas"]

FILES: Mapping[str, str] = {
    "harken": "harken.yaml",
    "workflow": "workflows/*.yaml",
    "pollers": "pollers.yaml",
    "cases": "tests/*.yaml",
}
OFFERED = ("workflow", "harken", "pollers")
"""Those that a running controller gives; test cases are no part of it."""
DRAFT = "http://json-schema.org/draft-07/schema#"
_TEXT_TOO = {"number": "string", "integer": "string", "boolean": "string", "array": "string", "object": "string"}
_INTERPOLATED = {"type": "string", "pattern": r"\$\{|\{\{"}
_LISTENS = ("poll", "webhook", "stream", "file", "schedule", "event", "api", "feed")


async def schema(context: Context, *, file: str = "workflow") -> Plain:
    """The JSON Schema of a kind of file, with the services that are installed: what editors complete."""
    if file not in OFFERED:
        raise Malformed(f"there is no schema of {file}", fix=suggest_fix(file, OFFERED))
    return await asyncio.to_thread(_cached_schema, file)


@cache
def _cached_schema(name: str) -> Plain:
    return file_schema(name)


def file_schema(name: str, *, cases: type[BaseModel] | None = None) -> Plain:
    """The schema of one of `FILES`, with the services that are installed here. `cases` is the model of test cases."""
    from harken.services import registry

    return _Schemas(registry(), cases).of(name)


def write_schemas(into: Path, *, cases: type[BaseModel]) -> list[str]:
    """Write all schemas into a directory, over those that are there, and return their paths."""
    into.mkdir(parents=True, exist_ok=True)
    written = []
    for name in FILES:
        path = into / f"{name}.schema.json"
        path.write_text(json.dumps(file_schema(name, cases=cases), indent=1, ensure_ascii=False) + "\n", "utf-8")
        written.append(str(path))
    return written


class _Schemas:
    def __init__(self, plugins: Mapping[str, Plugin], cases: type[BaseModel] | None) -> None:
        self._plugins = plugins
        self._cases_model = cases
        self._definitions: dict[str, Any] = {}

    def of(self, name: str) -> Plain:
        make = {"harken": self._harken, "workflow": self._workflow, "pollers": self._pollers, "cases": self._cases}
        body = make[name]()
        # a file may have nothing but comments in it
        body["type"] = ["object", "null"]
        return {"$schema": DRAFT, "title": f"Harken: {FILES[name]}", **body, "$defs": self._definitions}

    def _workflow(self) -> Plain:
        from harken.config.workflows import WorkflowFile

        body = self._model(WorkflowFile)
        self._definitions["Trigger"] = self._trigger()
        self._definitions["Step"] = self._step()
        body["properties"]["trigger"] = {"$ref": "#/$defs/Trigger"}
        body["properties"]["steps"] = {"$ref": "#/$defs/Steps"}
        self._definitions["Steps"] = {"type": "array", "items": {"$ref": "#/$defs/Step"}}
        body["properties"] = describe(body["properties"], "WorkflowFile")
        body["required"] = ["name", "steps"]
        return body

    def _trigger(self) -> Plain:
        from harken.config.trigger_schema import EventBlock, FileBlock, PollBlock, TriggerBlock, WebhookBlock
        from harken.services.cron import plugin as cron

        body = self._model(TriggerBlock)
        assert cron.query
        given = body["properties"]
        schedule = self._open(self._model(cron.query))
        given["schedule"] = {"anyOf": [{"type": "string"}, schedule]}
        given["poll"] = self._by_service(self._model(PollBlock), "integration", "query", "query")
        given["poll"]["properties"]["schedule"] = given["schedule"]
        given["webhook"] = self._by_provider(self._open(self._model(WebhookBlock)))
        given["stream"] = self._by_service(_stream_block(), "integration", "query", "stream_query")
        given["file"] = {"anyOf": [{"type": "string"}, self._files(self._model(FileBlock))]}
        given["event"] = {"anyOf": [{"type": ["string", "array"]}, self._model(EventBlock)]}
        given["api"] = {"type": ["boolean", "object"]}
        given["feed"] = {"type": "string"}
        given["type"] = {"enum": list(_LISTENS)}
        for name, model in (("poll", "FeedBlock"), ("webhook", "WebhookBlock"), ("stream", "StreamBlock")):
            given[name]["properties"] = describe(given[name]["properties"], model)
        body["properties"] = describe(given, "TriggerBlock")
        body["anyOf"] = [{"required": [name]} for name in _LISTENS]
        return body

    def _files(self, common: Plain) -> Plain:
        model = self._plugins["files"].query if "files" in self._plugins else None
        own = self._model(model)["properties"] if model else {}
        return {**common, "properties": {**own, **common["properties"]}}

    def _by_service(self, block: Plain, field: str, inside: str, kind: str) -> Plain:
        """The block, whose `inside` is that of the service which `field` names. Accounts have names of their own."""
        rules = []
        for name, plugin in self._kinds():
            model = getattr(plugin, kind)
            if model is not None:
                self._define(f"{plugin.kind}.{kind}", model)
                then = {"properties": {inside: {"$ref": f"#/$defs/{plugin.kind}.{kind}"}}}
                rules.append(_when(field, name, then))
        suggestions = {"anyOf": [{"enum": sorted(_named(rules))}, {"type": "string"}]}
        return {**block, "properties": {**block["properties"], field: suggestions}, "allOf": rules}

    def _by_provider(self, block: Plain) -> Plain:
        rules = []
        for name, plugin in self._kinds():
            if plugin.webhook_query is not None:
                own = self._model(plugin.webhook_query)["properties"]
                provider = "generic" if name == "webhook" else name
                rules.append(_when("provider", provider, {"properties": own}))
        generic: Plain = next((rule["then"]["properties"] for rule in rules if _named([rule]) == {"generic"}), {})
        suggestions = {"anyOf": [{"enum": sorted(_named(rules))}, {"type": "string"}]}
        return {**block, "properties": {**generic, **block["properties"], "provider": suggestions}, "allOf": rules}

    def _step(self) -> Plain:
        from harken.run.compiler import StepBlock
        from harken.run.steps import KINDS

        common = self._model(StepBlock)["properties"]
        models = {name: kind.params for name, kind in KINDS.items() if name}
        models |= {
            f"{plugin.kind}.{name}": act.params for _, plugin in self._kinds() for name, act in plugin.actions.items()
        }
        rules = []
        for action, model in sorted(models.items()):
            own = self._model(model)
            for inner in ("steps", "then", "else", "default"):
                if inner in own.get("properties", {}):
                    own["properties"][inner] = {"$ref": "#/$defs/Steps"}
            # those of the kind may be overwritten above, and say then nothing of their own
            said = describe(own.get("properties", {}), model.__name__)
            known = {**said, **common, "action": True, "type": True}
            self._definitions[f"step.{action}"] = {**own, "properties": known}
            rules.append(_when("action", action, {"$ref": f"#/$defs/step.{action}"}))
        named = {"anyOf": [{"enum": sorted(models)}, {"type": "string"}]}
        properties = describe({**common, "action": named, "type": named}, "StepBlock")
        return {"type": "object", "properties": properties, "allOf": rules}

    def _harken(self) -> Plain:
        from harken.config.accounts import Integration
        from harken.config.feeds import NamedFeedBlock
        from harken.config.settings import Settings

        body = self._model(Settings)
        feed = self._by_service(self._model(NamedFeedBlock), "integration", "query", "query")
        self._definitions["Feed"] = feed
        self._definitions["Integration"] = self._accounts(self._open(self._model(Integration)))
        body["properties"] |= {
            "integrations": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Integration"}},
            "feeds": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Feed"}},
            "trackers": {"type": "object"},
            "projects": {"type": "object"},
            "agents": {},
            "pollers": self._jobs(),
        }
        return body

    def _accounts(self, block: Plain) -> Plain:
        rules = []
        for name, plugin in self._kinds():
            own = self._model(plugin.account)["properties"] if plugin.account is not None else {}
            rules.append(_when("kind", name, {"properties": own}))
        return {**block, "properties": {**block["properties"], "kind": {"enum": sorted(_named(rules))}}, "allOf": rules}

    def _jobs(self) -> Plain:
        from harken.config.pollers.schema import JobBlock, PollersBlock

        body = self._open(self._model(PollersBlock))
        self._define("Job", JobBlock)
        listed = {"type": "array", "items": {"$ref": "#/$defs/Job"}}
        return {**body, "properties": {**body.get("properties", {}), "jobs": listed}, "type": ["object", "array"]}

    def _pollers(self) -> Plain:
        return {"type": "object", "properties": {"pollers": self._jobs(), "agents": {}}}

    def _cases(self) -> Plain:
        assert self._cases_model is not None
        return self._model(self._cases_model)

    def _kinds(self) -> Iterable[tuple[str, Plugin]]:
        for kind, plugin in sorted(self._plugins.items()):
            for name in (kind, *plugin.aliases):
                yield name, plugin

    def _define(self, name: str, model: type[BaseModel]) -> None:
        if name not in self._definitions:
            self._definitions[name] = {}
            self._definitions[name] = self._model(model)

    def _model(self, model: type[BaseModel]) -> Plain:
        body, definitions = model_schema(model)
        self._definitions |= {name: value for name, value in definitions.items() if name not in self._definitions}
        return body

    def _open(self, body: Plain) -> Plain:
        return {key: value for key, value in body.items() if key != "additionalProperties"}


def model_schema(model: type[BaseModel]) -> tuple[Plain, Plain]:
    """The schema of a model and its definitions: what a file may have where the model is read."""
    prefix = f"{model.__module__.removeprefix('harken.')}.{model.__name__}"
    body = model.model_json_schema(ref_template=f"#/$defs/{prefix}.{{model}}")
    definitions = {f"{prefix}.{name}": _described(name, loosen(value)) for name, value in body.pop("$defs", {}).items()}
    loose: Plain = loosen(body)
    named = [one.__name__ for one in model.__mro__]
    loose["properties"] = describe(_with_aliases(model, loose.get("properties", {})), *named)
    known = set(loose["properties"])
    aliases = {field.alias for field in model.model_fields.values() if field.alias}
    # either name will do, so neither is required
    loose["required"] = [name for name in loose.get("required", ()) if name in known and name not in aliases]
    return {key: value for key, value in loose.items() if value != []}, definitions


def _described(model: str, body: Plain) -> Plain:
    return {**body, "properties": describe(body["properties"], model)} if "properties" in body else body


def _with_aliases(model: type[BaseModel], properties: Plain) -> Plain:
    found = dict(properties)
    for name, field in model.model_fields.items():
        if field.alias and field.alias in found:
            found[name] = found[field.alias]
    return found


def loosen(value: Any) -> Any:
    """The schema without noise, in which any value may be text instead: a duration, a reference or a template."""
    if isinstance(value, list):
        return [loosen(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {
        key: _inner(key, one) for key, one in value.items() if key not in ("title", "format", "writeOnly", "default")
    }
    kind = made.get("type")
    if "enum" in made:
        return {"anyOf": [made, _INTERPOLATED]}
    if isinstance(kind, str) and kind in _TEXT_TOO:
        made["type"] = [kind, _TEXT_TOO[kind]]
    elif kind == "string":
        made["type"] = ["string", "number", "boolean"]
        for limit in ("pattern", "minLength", "maxLength"):
            made.pop(limit, None)
    return made


def _inner(key: str, value: Any) -> Any:
    # a property may be called `title` or `format`: only its own schema is looked at
    if key in ("properties", "$defs") and isinstance(value, dict):
        return {name: loosen(one) for name, one in value.items()}
    return value if key in ("enum", "required", "const", "description") else loosen(value)


def _when(field: str, name: str, then: Plain) -> Plain:
    return {"if": {"properties": {field: {"const": name}}, "required": [field]}, "then": then}


def _named(rules: Iterable[Mapping[str, Any]]) -> set[str]:
    return {next(iter(rule["if"]["properties"].values()))["const"] for rule in rules}


def _stream_block() -> Plain:
    text = {"type": "string"}
    return {
        "type": "object",
        "properties": {"integration": text, "query": {}, "account": text},
        "additionalProperties": False,
    }
