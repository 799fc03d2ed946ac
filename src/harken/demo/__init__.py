"""`harken demo`: Harken at work on simulated services on this machine, with a final audit."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from harken.demo.lost_and_duplicate_count import Summary

__all__ = ["SCENARIOS", "program", "run"]

PORT = 9091
SCENARIOS = {
    "": "harken.demo.scenarios.incidents_news_and_deploys",
    "pagerduty": "harken.demo.scenarios.pagerduty",
    "slack": "harken.demo.scenarios.slack",
    "jira": "harken.demo.scenarios.jira",
    "datadog": "harken.demo.scenarios.datadog",
    "tickets": "harken.demo.scenarios.tickets",
    "streams": "harken.demo.scenarios.streams",
}
"""Each demo by name, with the module of its play."""
GUIDES = {"tickets": "how-to/tickets.md", "streams": "how-to/follow-a-stream.md"}
"""What to read next about what a demo shows."""


def run(
    name: str = "", *, seconds: float | None = None, as_json: bool = False, port: int = PORT, keep: bool = False
) -> int:
    """Run the demo, for so many seconds or until Ctrl-C. Returns 1 if anything was lost, doubled or made up."""
    _refuse_unknown(name)
    summary = _on_a_loop(_perform(name, seconds, as_json, port, keep))
    print(_json(summary) if as_json else _text(summary, name))
    return 0 if summary.good or seconds is None else 1


def _refuse_unknown(name: str) -> None:
    if name not in SCENARIOS:
        from harken.errors import NotFound
        from harken.suggest import suggest_fix

        raise NotFound(f"there is no demo of {name}", fix=suggest_fix(name, filter(None, SCENARIOS)))


def _on_a_loop(performance: Coroutine[None, None, Summary]) -> Summary:
    if sys.platform == "win32":
        return asyncio.run(performance)
    import uvloop

    return uvloop.run(performance)


async def _perform(name: str, seconds: float | None, as_json: bool, port: int, keep: bool) -> Summary:
    from harken.demo.runner import perform

    stop = asyncio.Event()
    if sys.platform != "win32":
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await perform(name, seconds=seconds, as_json=as_json, port=port, keep=keep, stop=stop)


def _json(summary: Summary) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(summary), indent=2).decode()


def program() -> str:
    """How this program is called in a shell."""
    if _run_by_uvx():
        return "uvx harken"
    if shutil.which("harken"):
        return "harken"
    by_module = os.path.basename(sys.argv[0]) == "__main__.py"
    return "python -m harken" if by_module else os.path.relpath(sys.argv[0])


def _run_by_uvx() -> bool:
    """Whether the command is gone with this process: uvx puts its environment on the path of the process alone."""
    own = os.path.dirname(sys.executable)
    elsewhere = os.pathsep.join(one for one in os.environ.get("PATH", "").split(os.pathsep) if one != own)
    activated = os.environ.get("VIRTUAL_ENV") == sys.prefix
    return "UV" in os.environ and not activated and not shutil.which("harken", path=elsewhere)


def _text(summary: Summary, demo: str) -> str:
    import msgspec

    from harken.demo.legend import SUMMARY

    rows = {**msgspec.structs.asdict(summary), "lost_examples": (), "duplicate_examples": ()}
    lines = [
        f"  {name.replace('_', ' '):<18}{value!s:<7}{SUMMARY.get(name, '')}".rstrip()
        for name, value in rows.items()
        if value not in ((), "")
    ]
    examples = [f"  lost: {name}" for name in summary.lost_examples]
    examples += [f"  duplicate: {name}" for name in summary.duplicate_examples]
    return "\n".join(["", "demo summary", *lines, *examples, *_next_steps(summary, demo)])


def _next_steps(summary: Summary, demo: str) -> list[str]:
    from harken.docs_urls import address_of

    name = program()
    places = [f"docs/{GUIDES[demo]}", f"examples/{demo}"] if demo in GUIDES else []
    more = [f"More about {demo}:", *(f"  {address_of(place)}" for place in places)] if places else []
    return [
        "",
        *more,
        f"{_verdict(summary)} The next step, also without an account:",
        f"  {name} init my-automations",
        f"  {name} --config my-automations start",
    ]


def _verdict(summary: Summary) -> str:
    if not summary.good:
        return "This demo did not go well."
    if not summary.events_at_source:
        return "It was stopped before anything happened."
    return "Nothing was lost, doubled or made up."
