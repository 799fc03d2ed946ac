"""Translate gmail-poller.yaml, the older format for Gmail jobs, to jobs of pollers.yaml.

Pure: takes the tree of the file and returns trees of jobs whose values keep their places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from harken.config.findings import Finding, Path, Place, Report, other_places
from harken.config.model_validation import as_table
from harken.config.yaml.nodes import Items, Node, Scalar, Table, is_empty, to_storable
from harken.config.yaml.writer import to_yaml
from harken.suggest import suggest_fix

__all__ = ["LegacyJob", "Translated", "as_yaml", "deprecations", "translate"]

ROOT = "gmail_poller"
_PREFIX = "gmail_legacy_"
_SHORTEST = 10
_INTERVAL = 60
_DEFAULT = "default"
_CREDENTIALS = ("token_path", "client_id_path", "client_secret_path")
_TOP = ("enabled", "interval_secs", "accounts", "jobs", *_CREDENTIALS)
_ACCOUNT = ("id", "agent_id", *_CREDENTIALS)
# settings with the same name and meaning in both formats
_SAME = (
    "query",
    "newer_than",
    "max_per_tick",
    "dispatch_delay_ms",
    "sender_allowlist",
    "extract",
    "require_fields",
    "message_template",
    "mark_read_on_dispatch",
)
_JOB = ("name", "account", "interval_secs", "forward_to_subject", "forward_to", *_SAME)
_REQUIRED = ("name", "query", "forward_to_subject", "forward_to", "message_template")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_SUBJECT = re.compile(r"plugin\.outbound\.([A-Za-z0-9_-]+)(?:\.(.+))?")
_SENDER = re.compile(r"(?:[^@\s]*@)?[^@\s.]+(?:\.[^@\s.]+)+")


class LegacyJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of pollers.yaml, with its path in the old file. It must not run if `found` has an error."""

    id: str
    path: Path
    node: Table
    found: tuple[Finding, ...] = ()

    @property
    def usable(self) -> bool:
        return all(finding.severity != "error" for finding in self.found)


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs with their findings; `findings` are about the file as a whole."""

    jobs: tuple[LegacyJob, ...] = ()
    findings: tuple[Finding, ...] = ()


def translate(tree: Node) -> Translated:
    """Return the jobs of a gmail-poller.yaml. Everything that is not translated has a finding."""
    report = Report()
    root = as_table(tree, report, ())
    section = as_table(root.items[ROOT], report, (ROOT,)) if root and ROOT in root.items else None
    if root is not None:
        _check_names(root, (ROOT,), report, ())
    if section is None:
        if root is not None and ROOT not in root.items:
            report.error(root.place, (), f"there is no {ROOT}: section", f"Write {ROOT}: at the top", "missing")
        return Translated(findings=tuple(report.findings))
    return _File(section, report).jobs()


def deprecations(translated: Translated) -> list[Finding]:
    """Return a warning for each job that names its id in pollers.yaml."""
    report = Report()
    for job in translated.jobs:
        message = f"the older gmail-poller.yaml is deprecated; this runs as the poller job {job.id}"
        fix = "Move it into pollers.yaml with: harken import gmail-poller FILE --write"
        report.warn(job.node.place, job.path, message, fix, "deprecated")
    return report.findings


def as_yaml(jobs: Iterable[LegacyJob]) -> str:
    """Return the text for pollers.yaml. References such as ${NAME} stay references."""
    return to_yaml({"pollers": {"jobs": [to_storable(job.node) for job in jobs]}})


class _File:
    def __init__(self, section: Table, report: Report) -> None:
        self._section = section
        self._report = report
        _check_names(section, _TOP, report, (ROOT,))
        self._interval = _seconds(section, _INTERVAL, report, (ROOT,))
        self._named: set[str] = set()
        self._agents = self._accounts()

    def jobs(self) -> Translated:
        if _value(self._section, "enabled") is False:
            place = self._section.keys["enabled"]
            self._report.warn(place, (ROOT, "enabled"), "it is switched off: its jobs are left out", "", "ignored")
            return Translated(findings=tuple(self._report.findings))
        listed = self._section.items.get("jobs")
        if not isinstance(listed, Items):
            place = listed.place if listed is not None else self._section.place
            self._report.error(place, (ROOT, "jobs"), "must be a list", "Write jobs: and a list of them", "wrong_type")
            return Translated(findings=tuple(self._report.findings))
        made = [self._job(node, (ROOT, "jobs", number)) for number, node in enumerate(listed.items)]
        jobs = _refuse_duplicates([job for job in made if job is not None])
        return Translated(jobs=tuple(jobs), findings=tuple(self._report.findings))

    def _accounts(self) -> Mapping[str, Scalar]:
        """Return the agent of each account, by the account's id."""
        self._warn_of_credentials(self._section, (ROOT,))
        listed = self._section.items.get("accounts")
        if listed is not None and not isinstance(listed, Items) and not is_empty(listed):
            self._report.error(listed.place, (ROOT, "accounts"), "must be a list", "Write - id: lines", "wrong_type")
        found: dict[str, Scalar] = {}
        for number, node in enumerate(listed.items if isinstance(listed, Items) else ()):
            path = (ROOT, "accounts", number)
            table = as_table(node, self._report, path)
            if table is None:
                continue
            _check_names(table, _ACCOUNT, self._report, path)
            self._warn_of_credentials(table, path)
            account, agent = table.items.get("id"), table.items.get("agent_id")
            if isinstance(account, Scalar) and isinstance(account.value, str):
                named = isinstance(agent, Scalar) and agent.value
                self._named |= {account.value} if named else set()
                found[account.value] = agent if isinstance(agent, Scalar) and named else account
            else:
                self._report.error(table.place, (*path, "id"), "an account has no id", "Give it one", "missing")
        return found or {_DEFAULT: Scalar(value=_DEFAULT, place=self._section.place)}

    def _warn_of_credentials(self, table: Table, path: Path) -> None:
        for name in _CREDENTIALS:
            if name in table.items:
                fix = "Sign in with: harken integrations google configure, and bind the account under agents:"
                self._report.warn(table.keys[name], (*path, name), "credentials are not taken over", fix, "ignored")

    def _job(self, item: Node, path: Path) -> LegacyJob | None:
        table = as_table(item, self._report, path)
        if table is None:
            return None
        report = Report()
        _check_names(table, _JOB, report, path)
        _check_texts(table, report, path)
        id = _PREFIX + _NOT_IN_IDS.sub("_", str(_value(table, "name") or ""))
        made: dict[str, Node] = {
            "id": _scalar_at(table, "name", id),
            "kind": Scalar(value="gmail", place=table.place),
            "agent": self._agent(table, report, path),
            "schedule": _table(table, {"every_secs": self._every(table, report, path)}),
            "config": _config(table, report, path),
        }
        return LegacyJob(id=id, path=path, node=_table(table, made), found=tuple(report.findings))

    def _agent(self, table: Table, report: Report, path: Path) -> Scalar:
        account = str(_value(table, "account") or _DEFAULT)
        place = _scalar_at(table, "account", "").place
        agent = self._agents.get(account)
        if agent is None:
            message = f"there is no account {account!r}"
            report.error(place, (*path, "account"), message, suggest_fix(account, self._agents), "unknown_name")
            return Scalar(value=account, place=place)
        if account not in self._named:
            fix = "Correct the agent of the job if it has another name"
            report.warn(place, (*path, "account"), f"no agent is named, so {account} is taken for one", fix)
        return agent

    def _every(self, table: Table, report: Report, path: Path) -> Scalar:
        seconds = _seconds(table, self._interval, report, path)
        if seconds < _SHORTEST:
            place = _scalar_at(table, "interval_secs", 0).place
            message = f"{seconds} s is too short, and {_SHORTEST} s is taken"
            report.warn(place, (*path, "interval_secs"), message, "", "too_often")
        return _scalar_at(table, "interval_secs", max(seconds, _SHORTEST))


def _config(table: Table, report: Report, path: Path) -> Table:
    made = {name: table.items[name] for name in _SAME if name in table.items and not is_empty(table.items[name])}
    if "newer_than" not in made:
        message = "without newer_than the first look reaches back a day, and not through the whole mailbox"
        report.warn(table.place, path, message, "Add newer_than to the job for more")
    for number, node in enumerate(getattr(made.get("sender_allowlist"), "items", ())):
        value = getattr(node, "value", None)
        if isinstance(value, str) and not _SENDER.fullmatch(value):
            message = f"{value!r} was any part of the sender; now it is a whole address or a domain"
            report.warn(
                node.place, (*path, "sender_allowlist", number), message, "Write name@example.com or @example.com"
            )
    deliver = {"channel": _channel(table, report, path), "to": _recipient(table)}
    return _table(table, {**made, "deliver": _table(table, deliver)})


def _channel(table: Table, report: Report, path: Path) -> Scalar:
    written = str(_value(table, "forward_to_subject") or "")
    node = _scalar_at(table, "forward_to_subject", "")
    found = _SUBJECT.fullmatch(written)
    if found is None:
        if written:
            fix = "Write plugin.outbound.CHANNEL, or plugin.outbound.CHANNEL.INSTANCE"
            report.error(node.place, (*path, "forward_to_subject"), "it does not say which channel", fix)
        return node
    if found[2] not in (None, _DEFAULT):
        message = f"the instance {found[2]} is left out"
        fix = f"Bind the agent to its account: agents: {{NAME: {{{found[1]}: ACCOUNT}}}}"
        report.warn(node.place, (*path, "forward_to_subject"), message, fix, "ignored")
    return _scalar_at(table, "forward_to_subject", found[1])


def _recipient(table: Table) -> Node:
    """Return the recipient; a number without quotes becomes a text."""
    node = table.items.get("forward_to")
    if isinstance(node, Scalar) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return Scalar(value=str(node.value), place=node.place)
    return node if node is not None else _scalar_at(table, "forward_to", "")


def _refuse_duplicates(jobs: list[LegacyJob]) -> list[LegacyJob]:
    """Refuse jobs whose names become the same id, each with the place of the other."""
    by_id: dict[str, list[Place]] = {}
    for job in jobs:
        by_id.setdefault(job.id, []).append(job.node.place)
    return [_refuse_duplicate(job, by_id[job.id]) for job in jobs]


def _refuse_duplicate(job: LegacyJob, places: list[Place]) -> LegacyJob:
    others = other_places(job.node.place, places)
    if not others:
        return job
    report = Report()
    message = f"the id {job.id} is that of the job at {others} as well"
    report.error(job.node.items["id"].place, (*job.path, "name"), message, "Change one of the names", "clash")
    return msgspec.structs.replace(job, found=(*job.found, *report.findings))


def _check_names(table: Table, known: Iterable[str], report: Report, path: Path) -> None:
    for name in table.items:
        if name not in known:
            fix = suggest_fix(name, known)
            report.warn(table.keys[name], (*path, name), "this is not known, and is left out", fix, "unknown_key")


def _check_texts(table: Table, report: Report, path: Path) -> None:
    for name in _REQUIRED:
        if name not in table.items or is_empty(table.items[name]):
            report.error(table.place, (*path, name), f"{name} is missing", f"Write {name}:", "missing")
    for name in (*_REQUIRED, "account"):
        node = table.items.get(name)
        if node is not None and not isinstance(node, Scalar):
            report.error(node.place, (*path, name), "must be text", "Write one value", "wrong_type")


def _seconds(table: Table, default: int, report: Report, path: Path) -> int:
    value = _value(table, "interval_secs")
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        place = table.items["interval_secs"].place
        report.error(place, (*path, "interval_secs"), "must be a number of seconds", "Write 60", "wrong_type")
        return default
    return value


def _value(table: Table, name: str) -> Any:
    node = table.items.get(name)
    return node.value if isinstance(node, Scalar) else None


def _scalar_at(table: Table, name: str, value: str | int) -> Scalar:
    """Return a scalar at the place of that key, or of its table when the key is missing."""
    node = table.items.get(name)
    return Scalar(value=value, place=node.place if node is not None else table.place)


def _table(origin: Table, items: Mapping[str, Node]) -> Table:
    return Table(items=items, keys={name: node.place for name, node in items.items()}, place=origin.place)
