"""Translate agentsmith.yml, the configuration of Agent Smith, to the trackers and projects of harken.yaml.

Pure: takes the tree of the file and returns plain values, with a finding for everything that is not taken over. Its
labels keep their prefix, so that tickets which are done stay done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from harken.config.findings import Finding, Path, Report
from harken.config.model_validation import as_table
from harken.config.yaml.nodes import Items, Node, Scalar, Table, is_empty, to_plain, to_storable
from harken.config.yaml.writer import to_yaml
from harken.docs_urls import address_of
from harken.suggest import suggest_fix

__all__ = ["TranslatedConfig", "as_yaml", "translate"]

PREFIX = "agent-smith"
TRIGGERS = ("github_trigger", "gitlab_trigger", "azuredevops_trigger", "jira_trigger")

_SAME_TOP = ("label_prefix", "pipeline_from_label")
_SAME_TRACKER = (
    "type",
    "url",
    "organization",
    "project",
    "open_states",
    "trigger_statuses",
    "done_status",
    "failed_status",
    "pipeline_from_label",
    "zero_match_comment",
    "webhook_secret",
    "polling",
)
_SAME_PROJECT = ("pipeline", "default_pipeline", "polling")
_SAME_TRIGGER = ("pipeline_from_label", "default_pipeline", "trigger_statuses", "done_status", "failed_status")
_SAME_SOURCE = ("type", "url", "path", "default_branch")
_QUEUE = ("max_parallel_jobs", "consume_block_seconds", "shutdown_grace_seconds")
_STRATEGIES = ("tag", "area_path", "repo")
# what Agent Smith's own kinds of sign-in are called; anything else names one of its secrets
_WAYS = ("token", "basic", "pat")

_AGENT = "Say in the workflow of the pipeline which agent runs: action: agent"
_WORKFLOW = f"Write it as workflows/NAME.yaml, like fix-bug and security-scan in {address_of('examples/tickets')}"
_DEPLOY = "Harken has no such setting"
_LEFT_OUT: Mapping[str, str] = {
    "agents": _AGENT,
    "agent": _AGENT,
    "pipelines": _WORKFLOW,
    "skills": _AGENT,
    "skills_path": _AGENT,
    "coding_principles_path": "Put it into the instructions of the agent, in the repository",
    "tool_runner": "Run the tool in a step of the workflow",
    "limits": "Write budget: on the project's workflow steps, or timeout: on its agent step",
    "deployment": _DEPLOY,
    "sandbox": _DEPLOY,
    "orchestrator": _DEPLOY,
    "pipeline_storage": "Harken keeps runs in its store",
    "pipeline_data_flow": "Steps pass values on as {{.steps.NAME}}",
    "primary_provider": "Set models: in harken.yaml",
    "comment_keyword": "A label starts a pipeline; a comment answers a run that waits",
    "assignee_name": "A label starts a pipeline, not an assignee: set pipeline_from_label",
    "close_transition_name": "Set done_status to the status that the ticket is moved to",
    "extra_fields": "Read them in a step of the workflow",
    "endpoints": "Set url: of the tracker",
}


class TranslatedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into harken.yaml, the pipelines that need a workflow, and what was not taken over."""

    values: Mapping[str, Any]
    pipelines: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def translate(tree: Node) -> TranslatedConfig:
    """Return the sections of an agentsmith.yml for harken.yaml."""
    report = Report()
    root = as_table(tree, report, ())
    if root is None:
        return TranslatedConfig(values={}, findings=tuple(report.findings))
    if "projects" not in root.items:
        report.error(root.place, (), "there is no projects: section", "Is this an agentsmith.yml?", "missing")
        return TranslatedConfig(values={}, findings=tuple(report.findings))
    return _File(root, report).translated()


def as_yaml(translated: TranslatedConfig) -> str:
    """Return the text for harken.yaml. References such as ${NAME} stay references."""
    return to_yaml(dict(translated.values))


class _File:
    def __init__(self, root: Table, report: Report) -> None:
        self._root = root
        self._report = report
        self._secrets = self._catalog("secrets")
        self._repos = self._catalog("repos")
        self._connections = self._catalog("connections")

    def translated(self) -> TranslatedConfig:
        top = ("projects", "trackers", "pipeline_triggers", "queue", "agent", "secrets", "repos", "connections")
        self._leave_out(self._root, (*top, *_SAME_TOP), ())
        values: dict[str, Any] = {"label_prefix": PREFIX}
        if "pipeline_triggers" in self._root.items:
            values["pipeline_from_label"] = to_storable(self._root.items["pipeline_triggers"])
        values |= _picked(self._root, _SAME_TOP)
        queue = self._queue()
        if queue:
            values["agent"] = {"queue": queue}
        trackers = self._each("trackers", self._tracker)
        if trackers:
            values["trackers"] = trackers
        values["projects"] = self._each("projects", self._project)
        return TranslatedConfig(
            values=values, pipelines=_pipelines(values), findings=tuple(sorted(self._report.findings, key=_place))
        )

    def _catalog(self, name: str) -> Mapping[str, Node]:
        """The named entries of a section that Harken does not have: others refer to them."""
        node = self._root.items.get(name)
        table = as_table(node, self._report, (name,)) if node is not None and not is_empty(node) else None
        return table.items if table is not None else {}

    def _each(self, section: str, read: Any) -> dict[str, Any]:
        node = self._root.items.get(section)
        table = as_table(node, self._report, (section,)) if node is not None and not is_empty(node) else None
        made: dict[str, Any] = {}
        for name, inner in table.items.items() if table is not None else ():
            entry = as_table(inner, self._report, (section, name))
            if entry is not None:
                made[name] = read(entry, (section, name))
        return made

    def _queue(self) -> dict[str, Any]:
        """`queue:` at the top, or `agent.queue` as in older files."""
        found: dict[str, Any] = {}
        for path in (("agent", "queue"), ("queue",)):
            table = _inner(self._root, path)
            if table is not None:
                self._leave_out(table, _QUEUE, path)
                found |= _picked(table, _QUEUE)
        agent = _inner(self._root, ("agent",))
        if agent is not None:
            self._leave_out(agent, ("queue",), ("agent",))
        return found

    def _tracker(self, table: Table, path: Path) -> dict[str, Any]:
        self._leave_out(table, (*_SAME_TRACKER, "auth"), path)
        return _picked(table, _SAME_TRACKER) | self._auth(table, path)

    def _project(self, table: Table, path: Path) -> dict[str, Any]:
        own = ("tracker", "tickets", "source", "repos", "resolution", *TRIGGERS, *_SAME_PROJECT)
        self._leave_out(table, own, path)
        made: dict[str, Any] = _picked(table, ("tracker",))
        tickets = _inner(table, ("tickets",))
        if tickets is not None:
            made["tickets"] = self._tracker(tickets, (*path, "tickets"))
        made |= self._source(table, path)
        made |= self._resolution(table, path)
        made |= _picked(table, _SAME_PROJECT)
        for name in TRIGGERS:
            block = _inner(table, (name,))
            if block is not None:
                made |= self._trigger(block, name, (*path, name), made)
        return made

    def _source(self, table: Table, path: Path) -> dict[str, Any]:
        """The repository of the project: inline, or the first of the list that names entries of `repos`."""
        inline = _inner(table, ("source",))
        if inline is not None:
            self._leave_out(inline, (*_SAME_SOURCE, "auth"), (*path, "source"))
            return {"source": _picked(inline, _SAME_SOURCE)}
        listed = table.items.get("repos")
        if not isinstance(listed, Items) or not listed.items:
            return {}
        for number, extra in enumerate(listed.items[1:], start=1):
            message = "a project has one repository: this one is left out"
            self._report.warn(extra.place, (*path, "repos", number), message, "Make a project of its own", "ignored")
        return self._repository(listed.items[0], (*path, "repos", 0))

    def _repository(self, node: Node, path: Path) -> dict[str, Any]:
        branch: dict[str, Any] = {}
        if isinstance(node, Table):
            branch = _picked(node, ("default_branch",))
            node = node.items.get("repo", node)
        name = node.value if isinstance(node, Scalar) else None
        if isinstance(name, str) and isinstance(found := self._repos.get(name), Table):
            return {"source": _picked(found, _SAME_SOURCE) | branch}
        if isinstance(name, str) and (url := self._connected(name)):
            return {"source": url | branch}
        known = [*self._repos, *self._connections]
        fix = suggest_fix(str(name), known) or "Write source: with the url of the repository"
        self._report.warn(node.place, path, f"the repository {name} cannot be told from this file", fix, "ignored")
        return {}

    def _connected(self, reference: str) -> dict[str, Any]:
        """`connection/name` names a repository of a host; a pattern has to be looked up there, which we do not do."""
        connection, _, name = reference.partition("/")
        host = self._connections.get(connection)
        if not isinstance(host, Table) or not name or any(sign in name for sign in "*?!["):
            return {}
        given = to_plain(host)
        kind, owner = str(given.get("type", "")), given.get("owner") or given.get("group")
        site = given.get("host") or {"github": "github.com", "gitlab": "gitlab.com"}.get(kind)
        if owner and site:
            return {"type": kind, "url": f"https://{site}/{owner}/{name}"}
        if given.get("organization") and given.get("project"):
            place = f"{given['organization']}/{given['project']}"
            return {"type": kind, "url": f"https://dev.azure.com/{place}/_git/{name}"}
        return {}

    def _resolution(self, table: Table, path: Path) -> dict[str, Any]:
        """`resolution: {tag: x}` on the project, or `project_resolution` in its trigger block."""
        for place in (("resolution",), *((name, "project_resolution") for name in TRIGGERS)):
            found = _inner(table, place)
            if found is None:
                continue
            given = to_storable(found)
            # the older form has the strategy and its value in two keys
            strategy = str(given["strategy"]).lower() if "strategy" in given else next(iter(given), "")
            value = given.get("value") if "strategy" in given else given.get(strategy)
            if strategy in _STRATEGIES and value:
                return {"resolution": {strategy: value}}
            message = f"projects are not told apart by {strategy or 'nothing'}"
            self._report.warn(found.place, (*path, *place), message, f"Use one of {', '.join(_STRATEGIES)}", "ignored")
        return {}

    def _trigger(self, block: Table, name: str, path: Path, project: Mapping[str, Any]) -> dict[str, Any]:
        self._leave_out(block, (*_SAME_TRIGGER, "project_resolution", "secret"), path)
        made: dict[str, Any] = {name: _picked(block, _SAME_TRIGGER)}
        secret = block.items.get("secret")
        if secret is None:
            return made
        if "tickets" in project:
            made["tickets"] = {**project["tickets"], "webhook_secret": self._secret(secret)}
        else:
            message = "the secret of a webhook belongs to its tracker"
            self._report.warn(secret.place, (*path, "secret"), message, "Set webhook_secret there", "ignored")
        return made

    def _auth(self, table: Table, path: Path) -> dict[str, Any]:
        """`auth` is a way of signing in, whose token comes from the environment, or names one of the secrets."""
        node = table.items.get("auth")
        value = node.value if isinstance(node, Scalar) else None
        if node is None or not isinstance(value, str) or value.lower() in _WAYS:
            return _picked(table, ("auth",))
        if value in self._secrets:
            return {"auth": "token", "token": to_storable(self._secrets[value])}
        fix = suggest_fix(value, self._secrets) or "Write token: ${NAME}"
        self._report.warn(node.place, (*path, "auth"), f"there is no secret {value!r}", fix, "unknown_name")
        return {}

    def _secret(self, node: Node) -> Any:
        value = to_storable(node)
        return to_storable(self._secrets[value]) if isinstance(value, str) and value in self._secrets else value

    def _leave_out(self, table: Table, known: Iterable[str], path: Path) -> None:
        wanted = set(known)
        for name in table.items:
            if name not in wanted:
                fix = _LEFT_OUT.get(name) or suggest_fix(name, wanted)
                self._report.warn(table.keys[name], (*path, name), "this is not taken over", fix, "ignored")


def _picked(table: Table, names: Iterable[str]) -> dict[str, Any]:
    return {name: to_storable(table.items[name]) for name in names if name in table.items}


def _inner(table: Table, path: tuple[str, ...]) -> Table | None:
    node: Node = table
    for part in path:
        found = node.items.get(part) if isinstance(node, Table) else None
        if found is None:
            return None
        node = found
    return node if isinstance(node, Table) else None


def _pipelines(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Every pipeline that is named anywhere, in the order in which they are named."""
    named: dict[str, None] = {}

    def look(value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key in ("pipeline", "default_pipeline") and isinstance(inner, str):
                    named[inner] = None
                elif key == "pipeline_from_label" and isinstance(inner, Mapping):
                    named.update(dict.fromkeys(str(name) for name in inner.values()))
                else:
                    look(inner)

    look(values)
    return tuple(named)


def _place(finding: Finding) -> tuple[int, int]:
    return finding.line, finding.column
