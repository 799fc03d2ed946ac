"""`harken status`, `doctor`, `diff` and `reload`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harken.cli.invocation import Session, command
from harken.cli.output import clock, fields, print_json, say, table
from harken.cli.tickets import webhook_share
from harken.errors import HarkenError
from harken.operate.wording import count, lag_text

__all__ = ["diff_command", "doctor_command", "reload_command", "status_command"]

REPLICA = (
    ("replica", "holder"),
    ("host", "host"),
    ("url", "url"),
    ("role", "role"),
    ("generation", "generation"),
    ("shards", "shards"),
    ("lag s", "lag_seconds"),
    ("runs", "runs_in_flight"),
    ("house", "keeps"),
)
TRACKER = (
    ("tracker", "name"),
    ("kind", "kind"),
    ("how", "how"),
    ("changes read up to", "mark"),
    ("swept", "swept_at"),
    ("trouble", "trouble"),
)
PLAN = ("add", "replace", "remove", "keep", "refused")


@command(None, "status")
def status_command(session: Session) -> int:
    """Show what runs and what needs a look. Exits 1 when something needs a person."""
    answer = session.call("status")
    if session.as_json:
        print_json(answer)
    else:
        _print_status(session, answer)
    return 1 if answer["needs_person"] else 0


def _print_status(session: Session, answer: Mapping[str, Any]) -> None:
    controller = answer["controller"]
    if answer["running"]:
        say(f"The controller runs: pid {controller.get('pid')}, {controller.get('url')}, version {answer['version']}")
    else:
        say("No controller is running. Start one with: harken start")
    if answer["store_trouble"]:
        say(f"The store cannot write: {answer['store_trouble']}")
    if answer["offline_since"]:
        say(f"Offline since {clock(answer['offline_since'])}: no host can be reached. It goes on by itself")
    if answer["config_errors"]:
        say(f"The configuration has {count(answer['config_errors'], 'error')}. See: harken config check")
    fields(session, {"triggers": _count_words(answer["triggers"]), "counts": _count_words(answer["counts"])})
    words = {
        "shards": _spans(controller.get("shards", ())),
        "stream_lags": _lag_words(controller.get("stream_lags", {})),
        "connections_refused": _count_words(controller.get("connections_refused", {})),
    }
    fields(session, {**controller, **words}, hide=("pid", "url", "version"))
    _fleet(answer["fleet"])
    _trackers(answer.get("trackers", ()))
    for one in answer["attention"]:
        say(f"{one['name']} is {one['status']}: {one['reason']}")
        say(f"  {one['advice']}")


def _fleet(fleet: Mapping[str, Any]) -> None:
    if not fleet:
        return
    say(f"The replicas share generation {fleet['generation']} (epoch {fleet['epoch']}):")
    rows = [
        {
            **replica,
            "shards": _spans(replica["shards"]) or "-",
            "generation": replica["generation"] if replica["current"] else f"{replica['generation']} (behind)",
            "keeps": "yes" if replica["holder"] == fleet["housekeeper"] else "-",
        }
        for replica in fleet["replicas"]
    ]
    table(rows, REPLICA)
    if fleet["unread_shards"]:
        say(f"Nobody reads the shards {_spans(fleet['unread_shards'])} now")


def _trackers(trackers: Sequence[Mapping[str, Any]]) -> None:
    if trackers:
        table([{**one, "how": _how(one), "mark": clock(one["mark"])} for one in trackers], TRACKER)


def _lag_words(lags: Mapping[str, Mapping[str, Any]]) -> str:
    """What waits at the brokers: `orders 12 messages, 3 s`."""
    said = {feed: lag_text(lag.get("messages"), lag.get("seconds")) for feed, lag in lags.items()}
    return "; ".join(f"{feed} {words}" for feed, words in said.items() if words)


def _how(tracker: Mapping[str, Any]) -> str:
    ways = ["polled"] if tracker["polled"] else []
    ways += [f"webhooks{webhook_share(tracker['webhooks'])}"] if tracker["webhook"] else []
    return " and ".join(ways) or "swept only"


def _spans(numbers: Sequence[int]) -> str:
    """Numbers in a row as one: 0-3, 7."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


@command(None, "doctor")
def doctor_command(session: Session) -> int:
    """Check this machine, with the fix for what is wrong. Exits 1 when something fails."""
    try:
        answer = session.call("doctor")
    except HarkenError as error:
        failed = {"name": "start", "state": "fail", "message": error.message, "fix": error.fix}
        answer = {"items": [failed], "ok": False}
    if session.as_json:
        print_json(answer["items"])
    else:
        columns = (("check", "name"), ("state", "state"), ("found", "message"), ("to do", "fix"))
        table(answer["items"], columns)
    return 0 if answer["ok"] else 1


@command(None, "diff")
def diff_command(session: Session) -> None:
    """Show what the changed configuration would do; changes nothing."""
    _plan(session, session.call("diff"), "Nothing would change.")


@command(None, "reload")
def reload_command(session: Session) -> int:
    """Apply the changed configuration. Exits 1 when a part of it was refused."""
    session.needs_controller()
    plan = session.call("reload")
    _plan(session, plan, "Nothing changed.")
    return 1 if plan.get("refused") else 0


def _plan(session: Session, plan: Mapping[str, Any], nothing: str) -> None:
    if session.as_json:
        print_json(plan)
        return
    rows = [_plan_row(what, item) for what in PLAN for item in plan.get(what) or ()]
    changes = [row for row in rows if row["what"] != "keep"]
    if changes:
        table(changes, (("what", "what"), ("item", "item"), ("why", "why")))
    else:
        say(nothing)
    freed = [f"{trigger} had stopped and is read again" for trigger in plan.get("freed") or ()]
    for note in (*freed, *(plan.get("notes") or ()), *(plan.get("findings") or ())):
        say(str(note))


def _plan_row(what: str, item: Any) -> dict[str, Any]:
    if isinstance(item, Mapping):
        named = item.get("item") or item.get("name") or ""
        return {"what": what, "item": named, "why": item.get("why") or item.get("reason") or ""}
    return {"what": what, "item": str(item), "why": ""}


def _count_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {_singular(name) if number == 1 else name}" for name, number in _spaced(counts))


def _spaced(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(name.replace("_", " "), number) for name, number in counts.items()]


def _singular(name: str) -> str:
    """`run ready` for `runs ready`; the names of states, such as healthy, stay as they are."""
    return re.sub(r"\b(run|event)s\b", r"\1", name)
