"""Nodes of n8n that do something, as steps."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from harken.config.importers import Variable, variable_name
from harken.config.importers.n8n.export import Node, objects_of
from harken.config.importers.n8n.expressions import Scope, Untranslatable, template_of
from harken.run.url_template import UNNAMED_HOST_FIX, host_problem

__all__ = ["PASSED_THROUGH", "Made", "keeps_item", "keeps_other_fields", "step_of"]

Fields = tuple[str | int, ...]

PASSED_THROUGH = ("noOp", "merge", "respondToWebhook")
_REASONS: Mapping[str, tuple[str, str]] = {
    "code": ("it has JavaScript", "Write it as a step: action: python, transform or http"),
    "function": ("it has JavaScript", "Write it as a step: action: python, transform or http"),
    "functionItem": ("it has JavaScript", "Write it as a step: action: python, transform or http"),
    "splitInBatches": ("loops are written in another way here", "Put the steps into foreach:"),
    "splitOut": ("one run has one item here", "Put what follows into foreach: over the list"),
    "itemLists": ("one run has one item here", "Put what follows into foreach: over the list"),
    "aggregate": ("one run has one item here", "Gather events with trigger.gather.digest, or use foreach:"),
    "agent": ("the model and its tools are nodes of their own", "Write action: llm with a prompt"),
    "openAi": ("models are called in another way here", "Write action: llm with a prompt"),
    "executeCommand": ("commands are off by default", "Write action: shell, and set steps.allow_shell"),
}
_SECRET = re.compile(r"(?i)auth|cookie|token|secret|key|password")
# of a query, in which `keywords` is none
_SECRET_QUERY = re.compile(r"(?i)(token|secret|passw\w*|key|auth|signature|appid)$")
_TOKEN = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_KEPT_HEADERS = ("content-type", "location", "etag", "retry-after", "x-request-id")
# settings without a counterpart here: told where a node has them
_LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "httpRequest": ("options.proxy", "options.allowUnauthorizedCerts", "allowUnauthorizedCerts", "options.headers"),
    "slack": ("attachments", "otherOptions.thread_ts", "otherOptions.ephemeral"),
    "telegram": (
        "replyMarkup",
        "additionalFields.parse_mode",
        "additionalFields.reply_to_message_id",
        "additionalFields.message_thread_id",
        "additionalFields.disable_notification",
    ),
    "emailSend": (
        "attachments",
        "ccEmail",
        "bccEmail",
        "options.attachments",
        "options.attachmentsUi",
        "options.ccEmail",
        "options.bccEmail",
        "options.ccList",
        "options.bccList",
        "options.replyTo",
    ),
}
_UNITS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A step without its id, the variables that it uses, and what is said about it.

    `fields`: what the fields of its item are called below `steps.ID`, where these are not simply its response.
    """

    step: Mapping[str, Any]
    fields: Callable[[Fields], Fields] | None = None
    variables: Mapping[str, Variable] = {}
    remarks: tuple[tuple[str, str], ...] = ()


def step_of(node: Node, scope: Scope) -> Made:
    """The step for a node; raises Untranslatable for what has none."""
    make = _KINDS.get(node.kind)
    if make is None:
        reason, fix = _REASONS.get(node.kind, (f"there is no step for {node.kind}", "Write the call with action: http"))
        raise Untranslatable(reason, fix)
    made = make(node, scope)
    extra: dict[str, Any] = {}
    if node.retries > 1:
        extra["retry"] = {"max_attempts": min(node.retries, 5)}
    if node.on_error:
        extra["on_error"] = node.on_error
    remarks = (*made.remarks, *_left_out(node))
    return msgspec.structs.replace(made, step={**made.step, **extra}, remarks=remarks)


def _left_out(node: Node) -> list[tuple[str, str]]:
    names = []
    for written in _LEFT_OUT.get(node.kind, ()):
        *folders, name = written.split(".")
        if _inner(node.parameters, *folders).get(name) not in (None, "", "none", False, [], {}):
            names.append(name)
    return [(f"this is not taken over: {', '.join(names)}", "Look whether the step needs it")] if names else []


def keeps_item(node: Node) -> bool:
    """Whether what follows sees the item that the node got, and not what the node did."""
    return node.kind in ("wait", "if", "filter", "switch", *PASSED_THROUGH)


def keeps_other_fields(node: Node) -> bool:
    """Whether what a set node gives on has the fields of its item that it does not set."""
    if node.version >= 3.3:
        return bool(node.parameters.get("includeOtherFields"))
    if node.version >= 3:
        return node.parameters.get("include") != "none"
    return not node.parameters.get("keepOnlySet")


def _http(node: Node, scope: Scope) -> Made:
    given = node.parameters
    url = template_of(given.get("url"), scope)
    if not isinstance(url, str) or not url:
        raise Untranslatable("it has no url", "Write url:")
    method = str(given.get("method") or given.get("requestMethod") or "GET").upper()
    options = _inner(given, "options")
    _refuse_http(given, options)
    step: dict[str, Any] = {"action": "http", "method": method, "url": url}
    headers, variables = _headers(node, scope)
    query = _query(node, scope, variables)
    # such a step would not load, and all others of the workflow not with it
    if problem := host_problem(url, headers, query):
        raise Untranslatable(problem, UNNAMED_HOST_FIX)
    body = _body(node, scope) if given.get("sendBody", node.version < 3 and method != "GET") else {}
    headers |= body.pop("headers", {})
    remarks = [] if "json" not in body or node.version >= 3 else [("the body is sent as JSON", "Check that it fits")]
    for name, variable in variables.items():
        what = "a credential of it is written in plain" if variable.value else "its credential is not in an export"
        remarks.append((f"{what}: here it is {name}", "Set it in .env or the environment"))
    step |= {key: value for key, value in (("headers", headers), ("query", query)) if value}
    step |= body
    if isinstance(options.get("timeout"), int | float) and 1 <= options["timeout"] < math.inf:
        step["timeout"] = f"{int(options['timeout'])}ms"
    answer = _inner(options, "response", "response")
    if answer.get("neverError") or options.get("ignoreResponseCode"):
        step["expect"] = ["2xx", "3xx", "4xx", "5xx"]
    return Made(step=step, fields=_answer_fields(given, options), variables=variables, remarks=tuple(remarks))


def _answer_fields(given: Mapping[str, Any], options: Mapping[str, Any]) -> Callable[[Fields], Fields] | None:
    """What the fields of an answer are called where n8n does not give on what was answered, but an object with it."""
    answer = _inner(options, "response", "response")
    whole = bool(answer.get("fullResponse") or options.get("fullResponse"))
    is_text = answer.get("responseFormat") == "text" or given.get("responseFormat") == "string"
    if not whole and not is_text:
        return None
    own_name = answer.get("outputPropertyName") or given.get("dataPropertyName") or "data"
    body = str(own_name) if is_text else "body"

    def found(fields: Fields) -> Fields:
        if fields[:1] == (body,):
            return ("response", *fields[1:])
        if whole and fields == ("statusCode",):
            return ("status_code",)
        if whole and len(fields) == 2 and fields[0] == "headers" and str(fields[1]).lower() in _KEPT_HEADERS:
            return ("headers", str(fields[1]).lower())
        shown = ".".join(map(str, fields)) or "the whole answer"
        raise Untranslatable(
            f"it uses {shown} of an answer",
            f"A step has response, status_code, and of headers {', '.join(_KEPT_HEADERS)}",
        )

    return found


def _query(node: Node, scope: Scope, variables: dict[str, Variable]) -> dict[str, Any]:
    given = node.parameters
    enabled = given.get("sendQuery", True)
    query = _pairs(given, "queryParameters", "queryParametersUi", scope, enabled=enabled)
    for name in ("jsonQuery", "queryParametersJson"):
        if given.get(name) and enabled:
            query |= _object(given[name], scope)
    for name, value in query.items():
        if _SECRET_QUERY.search(name) and _is_plain(value):
            variable = variable_name("n8n", node.name, name)
            variables[variable] = Variable(meaning=f"the query parameter {name} of {node.name}", value=value)
            query[name] = f"${{{variable}}}"
    return query


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) and value != "" and "{{" not in value and "${" not in value


def _refuse_http(given: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    if given.get("sendBinaryData") or given.get("contentType") in ("binaryData", "multipart-form-data"):
        raise Untranslatable("it sends a file", "Steps pass values on, not files")
    if given.get("responseFormat") == "file" or _inner(options, "response", "response").get("responseFormat") == "file":
        raise Untranslatable("it fetches a file", "Steps pass values on, not files")
    if "pagination" in options:
        raise Untranslatable("it reads page by page", "Poll the listing with the service json, which has paging:")


def _headers(node: Node, scope: Scope) -> tuple[dict[str, Any], dict[str, Variable]]:
    given = node.parameters
    headers = _pairs(given, "headerParameters", "headerParametersUi", scope, enabled=given.get("sendHeaders", True))
    for name in ("jsonHeaders", "headerParametersJson"):
        if given.get(name):
            headers |= _object(given[name], scope)
    variables: dict[str, Variable] = {}
    for name, value in headers.items():
        # what is written into an export in plain is a secret that a file should not have
        if _SECRET.search(name) and _is_plain(value):
            variable = variable_name("n8n", node.name, name)
            variables[variable] = Variable(meaning=f"the header {name} of {node.name}", value=value)
            headers[name] = f"${{{variable}}}"
    way = given.get("authentication")
    if way and way != "none":
        kind = str(given.get("genericAuthType") or given.get("nodeCredentialType") or way)
        if kind in ("httpQueryAuth", "queryAuth", "httpDigestAuth", "digestAuth"):
            raise Untranslatable(f"it signs in with {kind}", "Send the credential in a header")
        variable = variable_name("n8n", node.name, "authorization")
        meaning = f"the Authorization header of {node.name} ({kind}), such as Bearer … or Basic …"
        variables[variable] = Variable(meaning=meaning)
        headers["Authorization"] = f"${{{variable}}}"
    return headers, variables


def _pairs(given: Mapping[str, Any], name: str, old: str, scope: Scope, *, enabled: Any) -> dict[str, Any]:
    new, former = _inner(given, name).get("parameters"), _inner(given, old).get("parameter")
    entries = [*objects_of(new), *objects_of(former)] if enabled else []
    return {str(entry["name"]): template_of(entry.get("value", ""), scope) for entry in entries if entry.get("name")}


def _body(node: Node, scope: Scope) -> dict[str, Any]:
    given = node.parameters
    kind = given.get("contentType") or given.get("bodyContentType") or "json"
    for name in ("jsonBody", "bodyParametersJson"):
        if given.get(name) and given.get("specifyBody", "json") == "json":
            return {"json": _object_or_value(given[name], scope)}
    if kind == "raw":
        headers = {"Content-Type": given["rawContentType"]} if given.get("rawContentType") else {}
        return {"body": template_of(given.get("body") or "", scope), **({"headers": headers} if headers else {})}
    pairs = _pairs(given, "bodyParameters", "bodyParametersUi", scope, enabled=True)
    if kind in ("form-urlencoded", "form-data", "multipart-form-data"):
        raise Untranslatable("it sends a form", "Write body: as key=value&… and the header Content-Type")
    if node.version >= 4:
        pairs = _nested(pairs.items())
    return {"json": pairs} if pairs else {}


def _object(value: Any, scope: Scope) -> dict[str, Any]:
    made = _object_or_value(value, scope)
    if not isinstance(made, dict):
        raise Untranslatable("its JSON is no object", "Write it as YAML")
    return made


def _object_or_value(value: Any, scope: Scope) -> Any:
    """A JSON text with expressions in it as values with templates in them."""
    if not isinstance(value, str):
        return template_of(value, scope)
    text = value.removeprefix("=")
    pieces: list[str] = []

    def keep(found: re.Match[str]) -> str:
        pieces.append(found[0])
        return f"@@{len(pieces) - 1}@@"

    marked = _TOKEN.sub(keep, text) if value.startswith("=") else text
    loaded = _load(marked)

    def fill(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {key: fill(one) for key, one in inner.items()}
        if isinstance(inner, list):
            return [fill(one) for one in inner]
        if not isinstance(inner, str):
            return inner
        filled = re.sub(r"@@(\d+)@@", lambda found: pieces[int(found[1])], inner)
        made = template_of(f"={filled}" if pieces else inner, scope)
        # a whole value that was made into JSON text only to be sent is the value itself
        return made.replace(" | toJson}}", "}}") if made.count("{{") == 1 and made.endswith(" | toJson}}") else made

    return fill(loaded)


def _load(marked: str) -> Any:
    for text in (marked, re.sub(r'(?<![\w"@])(@@\d+@@)(?![\w"@])', r'"\1"', marked)):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    raise Untranslatable("its JSON cannot be read", "Write it as YAML")


def _assigned(node: Node) -> list[tuple[str, Any]]:
    given = node.parameters
    entries: list[tuple[str, Any]] = []
    for entry in objects_of(_inner(given, "assignments").get("assignments")):
        if entry.get("name"):
            entries.append((str(entry["name"]), _typed(entry.get("value"), str(entry.get("type") or ""))))
    for group in ("values", "fields"):
        for kind, values in _inner(given, group).items():
            for entry in objects_of(values):
                if entry.get("name"):
                    typed = next((entry[key] for key in entry if key.endswith("Value")), entry.get("value"))
                    entries.append((str(entry["name"]), _typed(typed, kind)))
    return entries


def _typed(value: Any, kind: str) -> Any:
    if not isinstance(value, str) or value.startswith("="):
        return value
    try:
        if kind == "number":
            return float(value) if "." in value else int(value)
        if kind in ("object", "array"):
            return json.loads(value)
    except (ValueError, RecursionError):
        return value
    return value == "true" if kind == "boolean" else value


def _set(node: Node, scope: Scope) -> Made:
    if node.parameters.get("mode") == "raw":
        return Made(step={"action": "transform", "set": _object(node.parameters.get("jsonOutput") or "{}", scope)})
    values = [(name, template_of(value, scope)) for name, value in _assigned(node)]
    if not values:
        raise Untranslatable("it sets nothing", "Leave it out")
    with_dots = _inner(node.parameters, "options").get("dotNotation", True)
    return Made(step={"action": "transform", "set": _nested(values) if with_dots else dict(values)})


def _nested(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """`a.b` as `b` inside `a`."""
    made: dict[str, Any] = {}
    for name, value in values:
        place = made
        *folders, last = name.split(".")
        for folder in folders:
            inner = place.setdefault(folder, {})
            if not isinstance(inner, dict):
                raise Untranslatable(f"{name} is set inside a value that is no object")
            place = inner
        place[last] = value
    return made


def _wait(node: Node, scope: Scope) -> Made:
    given = node.parameters
    resume = given.get("resume") or "timeInterval"
    if resume == "specificTime":
        return Made(step={"action": "wait", "until": template_of(given.get("dateTime"), scope)})
    if resume != "timeInterval":
        raise Untranslatable(f"it waits for a {resume}", "Write action: approve, or a second workflow with a webhook")
    new = node.version >= 1.1
    amount, unit = given.get("amount", 5 if new else 1), str(given.get("unit") or ("seconds" if new else "hours"))
    if not isinstance(amount, int | float) or not math.isfinite(amount) or unit not in _UNITS:
        raise Untranslatable("how long it waits is not written out", "Write for:")
    if amount == int(amount):
        return Made(step={"action": "wait", "for": f"{int(amount)}{unit[0]}"})
    return Made(step={"action": "wait", "for": f"{round(amount * _UNITS[unit])}s"})


def _slack(node: Node, scope: Scope) -> Made:
    given = node.parameters
    if given.get("resource", "message") != "message" or given.get("operation", "post") != "post":
        raise Untranslatable(f"slack: {given.get('operation')} has no step", "Write action: http to Slack's API")
    if given.get("messageType", "text") != "text":
        raise Untranslatable("blocks are not translated", "Write action: slack.post with blocks:")
    to = _chosen(given.get("channelId") or given.get("channel") or given.get("user"))
    return _notify("slack", to, given.get("text"), scope)


def _telegram(node: Node, scope: Scope) -> Made:
    given = node.parameters
    if given.get("resource", "message") != "message" or given.get("operation", "sendMessage") != "sendMessage":
        raise Untranslatable(f"telegram: {given.get('operation')} has no step", "Write action: http to the Bot API")
    return _notify("telegram", given.get("chatId"), given.get("text"), scope)


def _email(node: Node, scope: Scope) -> Made:
    given = node.parameters
    operation = given.get("operation") or "send"
    if operation == "sendAndWait":
        raise Untranslatable("it waits for an answer", "Write action: notify, and action: approve after it")
    if operation != "send":
        raise Untranslatable(f"mail: {operation} has no step", "Write action: http to the API of the mailbox")
    text = given.get("text") or given.get("message") or given.get("html")
    made = _notify("email", given.get("toEmail") or given.get("sendTo"), text, scope, title=given.get("subject"))
    if text != given.get("html"):
        return made
    remark = ("its HTML is sent as text", "Write the text of the message")
    return msgspec.structs.replace(made, remarks=(*made.remarks, remark))


def _notify(channel: str, to: Any, text: Any, scope: Scope, title: Any = None) -> Made:
    if not isinstance(to, str | int) or not isinstance(text, str) or not text:
        raise Untranslatable("whom it tells, or what, is not written", "Write to: and text:")
    step = {"action": "notify", "channel": channel, "to": template_of(str(to), scope)}
    if isinstance(title, str) and title:
        step["title"] = template_of(title, scope)
    step["text"] = template_of(text, scope)
    remark = (f"its account is the integration {channel} here", f"harken integrations {channel} configure")
    return Made(step=step, remarks=(remark,))


def _chosen(value: Any) -> Any:
    """The value of a resource locator, or the plain value."""
    return value.get("value") if isinstance(value, dict) else value


def _inner(given: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found: Any = given
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


_KINDS: Mapping[str, Callable[[Node, Scope], Made]] = {
    "httpRequest": _http,
    "set": _set,
    "wait": _wait,
    "slack": _slack,
    "telegram": _telegram,
    "emailSend": _email,
}
