"""What a reload of the files changed, for the audit log: which item, in which file, at which revision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from harken.config.loaded import Loaded, item
from harken.runs import Workflow

__all__ = ["FILES", "MOST", "changed_at_start", "changed_files"]

FILES = "files"
"""Who changed something, where nobody asked for it by an operation: whoever may write the files."""
MOST = 200
"""Of a reload that changes more, the last entry says how many there were."""
_DONE = {"add": "added", "replace": "changed", "remove": "removed"}


def changed_files(old: Loaded, new: Loaded, plan: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the items that a reload adds, changes and removes, each with what is said of it."""
    found: dict[str, str] = {}
    # workflows before their feeds and triggers: a workflow that is new is not also changed
    parts = sorted(
        ((name, word) for kind, word in _DONE.items() for name in plan[kind]),
        key=lambda one: one[0].startswith("feed:"),
    )
    for name, done in parts:
        for written in _written_as(name, old, new):
            found.setdefault(written, "changed" if name.startswith("feed:") and written != name else done)
    for number, (name, done) in enumerate(sorted(found.items())):
        if number == MOST:
            yield "…", {"done": "changed", "more": len(found) - MOST, "generation": new.generation}
            return
        before, after = (loaded.workflows.get(name.removeprefix("workflow:")) for loaded in (old, new))
        said = {
            "done": done,
            "file": new.origins.get(name) or old.origins.get(name, ""),
            "rev": after.rev if after else "",
            "before": before.rev if before else "",
            "generation": new.generation,
        }
        yield name, {key: value for key, value in said.items() if value}


def changed_at_start(before: Loaded, files: Loaded) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what changed while no process ran. Of `before` only feeds and triggers are known."""
    was, now = ({trigger.name: trigger for trigger in loaded.triggers} for loaded in (before, files))
    plan = {
        "add": [item("trigger", name) for name in now.keys() - was.keys()],
        "replace": [item("trigger", name) for name in now.keys() & was.keys() if now[name] != was[name]],
        "remove": [item("trigger", name) for name in was.keys() - now.keys()],
    }
    revisions = {
        trigger.workflow: Workflow(name=trigger.workflow, rev=trigger.workflow_rev, definition={})
        for trigger in before.triggers
    }
    origins = {item("workflow", trigger.workflow): trigger.source for trigger in before.triggers}
    yield from changed_files(replace(before, workflows=revisions, origins=origins), files, plan)


def _written_as(name: str, old: Loaded, new: Loaded) -> list[str]:
    """The items that people write: triggers and feeds that no file names are parts of a workflow."""
    kind, _, rest = name.partition(":")
    if kind not in ("trigger", "feed") or name in new.origins or name in old.origins:
        return [name]
    if kind == "trigger":
        written = item("workflow", rest)
        return [written if written in new.origins or written in old.origins else name]
    read = {feed.name for loaded in (old, new) for feed in loaded.feeds if feed.display_name == rest}
    listening = {trigger.workflow for loaded in (old, new) for trigger in loaded.triggers if trigger.feed in read}
    return [item("workflow", workflow) for workflow in sorted(listening) if item("workflow", workflow) in new.origins]
