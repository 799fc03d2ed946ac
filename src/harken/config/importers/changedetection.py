"""Translate the watches of changedetection.io: each becomes a workflow that polls a page and notifies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from harken.config.findings import Path, Place, Report
from harken.config.importers import Imported, Variable, free_name, pattern_of, plain_text, slug, variable_name

__all__ = ["document_of_list", "translate"]

_UNITS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_SHORTEST = 10
_DEFAULT_INTERVAL = 3 * 3_600
_SIMPLE_JSON = re.compile(r"\$?\.?([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*|\[\d+\])*)")
_REGEX = re.compile(r"/(.*)/([a-z]*)", re.DOTALL)
_TOKEN = re.compile(r"\{\{\s*([a-z_]+)\s*\}\}")
_WITH_PASSWORD = re.compile(r"[a-zA-Z]+://[^/?#@]*:[^/?#]*@")
_SECRET_HEADER = re.compile(r"(?i)auth|cookie|token|secret|key|password")
_TEXTS: Mapping[str, str] = {
    "watch_url": "{{.trigger.event.url}}",
    "watch_title": "{{.trigger.event.title}}",
    "diff": "{{.trigger.event.diff}}",
    "diff_full": "{{.trigger.event.diff}}",
    "diff_patch": "{{.trigger.event.diff}}",
    "diff_added": "{{.trigger.event.added}}",
    "diff_removed": "{{.trigger.event.removed}}",
    "current_snapshot": "{{.trigger.event.new}}",
}
_BODY = "{{watch_url}} had a change.\n---\n{{diff}}"
_TITLE = "{{watch_title}}"
# settings that are left out with a warning, and what to do instead
_LEFT_OUT: Mapping[str, str] = {
    "subtractive_selectors": "Name a selector of the part that counts",
    "extract_text": "Name a narrower selector, or ignore the rest",
    "extract_lines_containing": "Write a condition such as event.added.contains(…)",
    "conditions": "Write a condition on event.new, event.added or event.removed",
    "proxy": "Set http.proxy in harken.yaml",
    "sort_text_alphabetically": "",
    "remove_duplicate_lines": "",
    "check_unique_lines": "Write a condition on event.added",
    "llm_intent": "Ask a model in a step of the workflow: action: llm",
    "ignore_status_codes": "",
}


def translate(document: Any, *, file: str) -> Imported:
    """Return a workflow for each watch of a datastore: `{"watching": {…}, "settings": {…}}`."""
    report = Report()
    watching = document.get("watching") if isinstance(document, dict) else None
    if not isinstance(watching, dict):
        fix = "Give url-watches.json, a backup, the data directory, or a list of addresses"
        report.error(Place(file), (), "there are no watches in it", fix, "missing")
        return Imported(workflows={}, findings=tuple(report.findings))
    return _Datastore(document, file, report).translated(watching)


def document_of_list(text: str) -> dict[str, Any]:
    """The datastore that a list of addresses stands for: one in each line, and tags after it."""
    lines = [line.split()[0] for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return {"watching": {f"line-{number}": {"url": url} for number, url in enumerate(lines, start=1)}}


class _Untranslatable(Exception):
    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class _Datastore:
    def __init__(self, document: Mapping[str, Any], file: str, report: Report) -> None:
        settings = _table(document.get("settings"))
        self._requests = _table(settings.get("requests"))
        self._application = _table(settings.get("application"))
        self._tags = _table(self._application.get("tags"))
        self._headers = _table(settings.get("headers"))
        self._place = Place(file)
        self._report = report
        self._variables: dict[str, Variable] = {}
        if self._application.get("global_subtractive_selectors"):
            path = ("settings", "application", "global_subtractive_selectors")
            fix = _LEFT_OUT["subtractive_selectors"]
            report.warn(self._place, path, "this is not taken over", fix, "ignored")
        self._urls: dict[str, str] = {}

    def translated(self, watching: Mapping[str, Any]) -> Imported:
        workflows: dict[str, Any] = {}
        places: dict[str, Place] = {}
        for uuid, watch in watching.items():
            path: Path = ("watching", str(uuid))
            if not isinstance(watch, dict) or not isinstance(watch.get("url"), str):
                self._report.error(self._place, path, "this is no watch: it has no url", "", "wrong_type")
                continue
            if watch.get("paused"):
                message = f"{_shown(watch)} is paused, and left out"
                self._report.warn(self._place, path, message, "Resume it there, and import again", "ignored")
                continue
            name = free_name(slug(_title(watch)) or "page", workflows)
            try:
                workflows[name] = self._workflow(name, watch, path)
                places[name] = self._place
            except _Untranslatable as reason:
                self._report.error(self._place, path, f"{_shown(watch)}: {reason}", reason.fix, "not_yet")
        urls = {name: f"${{{variable}}}" for variable, name in self._urls.items()}
        return Imported(
            workflows=workflows,
            places=places,
            settings={"integrations": {"apprise": {"kind": "apprise", "urls": urls}}} if urls else {},
            variables=self._variables,
            findings=tuple(self._report.findings),
        )

    def _workflow(self, name: str, watch: Mapping[str, Any], path: Path) -> dict[str, Any]:
        self._refuse_browser(watch)
        for key, fix in _LEFT_OUT.items():
            if watch.get(key):
                self._report.warn(self._place, (*path, key), "this is not taken over", fix, "ignored")
        if _table(watch.get("time_schedule_limit")).get("enabled"):
            fix = "Write schedule: with a cron line in place of interval"
            self._report.warn(self._place, (*path, "time_schedule_limit"), "this is not taken over", fix, "ignored")
        trigger: dict[str, Any] = {
            "poll": {"integration": "page", "interval": self._interval(watch), "query": self._query(name, watch, path)}
        }
        condition = _condition(watch)
        if condition:
            trigger["condition"] = condition
        return {
            "name": name,
            "description": plain_text(f"Changes of {_title(watch)}"),
            "trigger": trigger,
            "steps": self._steps(name, watch, path),
        }

    def _refuse_browser(self, watch: Mapping[str, Any]) -> None:
        fetcher = watch.get("fetch_backend") or "system"
        if fetcher == "system":
            fetcher = self._application.get("fetch_backend") or "html_requests"
        if fetcher != "html_requests" or watch.get("browser_steps") or watch.get("webdriver_js_execute_code"):
            raise _Untranslatable(
                "it needs a browser, which the service page does not have",
                "Look for the JSON behind the page in the browser's network view, and watch that",
            )
        processor = watch.get("processor") or "text_json_diff"
        if processor != "text_json_diff":
            raise _Untranslatable(
                f"the processor {processor} cannot be translated", "Watch the element with price or stock by a selector"
            )
        if (watch.get("method") or "GET") != "GET" or watch.get("body"):
            raise _Untranslatable("only pages that are read with GET can be watched", "Poll it with the service json")

    def _interval(self, watch: Mapping[str, Any]) -> str:
        own = 0 if watch.get("time_between_check_use_default") else _seconds(watch.get("time_between_check"))
        seconds = own or _seconds(self._requests.get("time_between_check")) or _DEFAULT_INTERVAL
        return _duration(max(seconds, _SHORTEST))

    def _query(self, name: str, watch: Mapping[str, Any], path: Path) -> dict[str, Any]:
        url = watch["url"].strip()
        if url.startswith("source:"):
            raise _Untranslatable("the source of a page cannot be watched", "Watch its text, or a selector")
        if "{%" in url or "{{" in url:
            raise _Untranslatable(
                "its address is a template", "Write the address out, or poll it with the service json"
            )
        if not url.lower().startswith(("http://", "https://")):
            raise _Untranslatable("only http and https can be watched", "Watch files with a trigger file:")
        query: dict[str, Any] = {"url": self._address(name, url)}
        filters = [*_texts(watch.get("include_filters") or watch.get("css_filter"))]
        for tag in self._tags_of(watch):
            filters += _texts(tag.get("include_filters"))
        query |= _selection(filters)
        ignored = [*_texts(watch.get("ignore_text")), *_texts(self._application.get("global_ignore_text"))]
        if ignored:
            query["ignore"] = [plain_text(_line_with(text)) for text in ignored]
        headers = {**self._headers, **_table(watch.get("headers"))}
        if headers:
            query["headers"] = {key: self._header(name, key, str(value)) for key, value in headers.items()}
        return query

    def _address(self, name: str, url: str) -> str:
        if not _WITH_PASSWORD.match(url):
            return plain_text(url)
        variable = variable_name(name, "url")
        self._variables[variable] = Variable(meaning=f"the address of {name}, with its password", value=url)
        return f"${{{variable}}}"

    def _header(self, name: str, key: str, value: str) -> str:
        if not _SECRET_HEADER.search(key):
            return plain_text(value)
        variable = variable_name(name, key)
        self._variables[variable] = Variable(meaning=f"the header {key} of {name}", value=value)
        return f"${{{variable}}}"

    def _steps(self, name: str, watch: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
        tags = self._tags_of(watch)
        urls = _texts(watch.get("notification_urls"))
        # the first tag that has addresses and is not muted counts
        heard = (_texts(tag.get("notification_urls")) for tag in tags if not tag.get("notification_muted"))
        urls = urls or next((found for found in heard if found), [])
        urls = urls or _texts(self._application.get("notification_urls"))
        if watch.get("notification_muted") or self._application.get("all_muted") or not urls:
            return [{"id": "note", "action": "transform", "set": {"diff": _TEXTS["diff"]}}]
        title = self._text(watch, "notification_title", _TITLE, path)
        text = self._text(watch, "notification_body", _BODY, path)
        steps: list[dict[str, Any]] = []
        for number, url in enumerate(dict.fromkeys(urls), start=1):
            step = {"id": f"tell_{number}", "action": "notify", "channel": "apprise", "to": self._destination(url)}
            steps.append({**step, "title": title, "text": text})
        return steps

    def _destination(self, url: str) -> str:
        """The name of a notification address. They hold tokens, so a variable stands for each."""
        for variable, name in self._urls.items():
            if self._variables[variable].value == url:
                return name
        kind = slug(url.partition("://")[0]) or "url"
        name = free_name(kind, set(self._urls.values()))
        variable = variable_name("changedetection", name)
        self._urls[variable] = name
        self._variables[variable] = Variable(meaning=f"a notification address, {kind}://…", value=url)
        return name

    def _text(self, watch: Mapping[str, Any], key: str, usual: str, path: Path) -> str:
        written = watch.get(key) or self._application.get(key) or usual
        unknown = [name for name in _TOKEN.findall(written) if name not in _TEXTS]
        if unknown or "{%" in written or "{{" in _TOKEN.sub("", written):
            message = "its template uses what an event of the service page does not have"
            self._report.warn(self._place, (*path, key), message, "The usual text is sent", "ignored")
            written = usual
        return plain_text(_TOKEN.sub(lambda found: _TEXTS[found[1]], written))

    def _tags_of(self, watch: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        found = [self._tags.get(uuid) for uuid in _texts(watch.get("tags"))]
        return [tag for tag in found if isinstance(tag, dict)]


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    given = value if isinstance(value, list) else [value]
    return [text.strip() for text in given if isinstance(text, str) and text.strip()]


def _title(watch: Mapping[str, Any]) -> str:
    named = watch.get("title") or watch.get("page_title")
    return str(named).strip() if named else re.sub(r"^[a-z]+://([^/?#]*@)?(www\.)?|[?#].*$", "", watch["url"].strip())


def _shown(watch: Mapping[str, Any]) -> str:
    return _title(watch)[:80]


def _seconds(value: Any) -> int:
    given = _table(value)
    amounts = [(given.get(unit), size) for unit, size in _UNITS.items()]
    return sum(int(amount) * size for amount, size in amounts if isinstance(amount, int | float) and isfinite(amount))


def _duration(seconds: int) -> str:
    parts = []
    for sign, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{sign}")
    return "".join(parts)


def _selection(filters: Sequence[str]) -> dict[str, Any]:
    """The selector or the JSON path of include_filters. Several selectors are one with commas."""
    selectors = []
    for written in dict.fromkeys(filters):
        if written.startswith(("json:", "jsonpath:")):
            simple = _SIMPLE_JSON.fullmatch(written.partition(":")[2].strip())
            if simple is None or len(set(filters)) > 1:
                raise _Untranslatable(f"the filter {written[:80]} cannot be translated", "Use one plain path: a.b[0].c")
            return {"json_path": re.sub(r"\[(\d+)\]", r".\1", simple[1])}
        if written.startswith(("/", "xpath:", "xpath1:", "(", "jq:", "jqraw:")):
            raise _Untranslatable(f"the filter {written[:80]} is no CSS selector", "Write it as a CSS selector")
        selectors.append(written.removeprefix("css:"))
    return {"selector": ", ".join(selectors)} if selectors else {}


def _line_with(text: str) -> str:
    """A regular expression for lines that have the text; `/…/i` is one already."""
    return _pattern(text) if _REGEX.fullmatch(text) else f"(?i)^.*{pattern_of(text)}.*$"


def _condition(watch: Mapping[str, Any]) -> str:
    clauses = []
    wanted = _texts(watch.get("trigger_text"))
    if wanted:
        clauses.append(_any_of(wanted))
    unwanted = _texts(watch.get("text_should_not_be_present"))
    if unwanted:
        clauses.append(f"!({_any_of(unwanted)})")
    added, removed = (watch.get(f"filter_text_{what}", True) for what in ("added", "removed"))
    if removed is False and added is not False:
        clauses.append('event.added != ""')
    elif added is False and removed is not False:
        clauses.append('event.removed != ""')
    return " && ".join(f"({clause})" if len(clauses) > 1 else clause for clause in clauses)


def _any_of(texts: Sequence[str]) -> str:
    return " || ".join(f"event.new.matches({json.dumps(_pattern(text))})" for text in texts)


def _pattern(text: str) -> str:
    written = _REGEX.fullmatch(text)
    if written is None:
        return f"(?i){pattern_of(text)}"
    flags = "".join(flag for flag in written[2] if flag in "ims")
    return f"(?{flags}){written[1]}" if flags else written[1]
