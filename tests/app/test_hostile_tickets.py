"""Whatever strangers write into a ticket, its run is an ordinary one, and nothing they wrote acts anywhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from harken.testing import VirtualClock, virtual
from tests.app.test_ticket_and_run_sync import POLLED, at_work
from tests.app.test_ticket_commands import call

MARK = "pwned4711"
TEXTS = {
    "hidden html": f"<!-- {MARK} @everyone --> fix it",
    "zero width": f"\u200b@\u2060{MARK}\ufeff",
    "option": f"--{MARK} -rf",
    "command": f"$(touch {MARK}) `touch {MARK}` ; touch {MARK}",
    "template": f'{{{{.run.id}}}} {{{{index . "steps"}}}} {MARK} ${{HOME}}',
    "condition": f'" || event.project == "x" || "{MARK}',
    "megabyte": MARK + "x" * 1_000_000,
    "null": f"\x00{MARK}\x00",
    "mention": f"@everyone @acme/owners {MARK}",
    "terminal": f"\x1b[2J\x1b]0;{MARK}\x07\x9b31m",
    "path": f"../../../user/{MARK}?admin=1#",
    "our lines": f"harken-receipt v1 run={MARK}\nharken-notice {MARK}",
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_ticket_of_a_stranger_acts_nowhere(name: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        text = TEXTS[name]
        with capture_logs() as lines:
            async with at_work(tmp_path, clock, POLLED) as (app, hub):
                await clock.sleep(60)
                issue = hub.open(text[:1_000], title=text, text=text, author=text[:200])
                hub.label(issue, "agent-smith", by="leo")
                await clock.sleep(600)
                hub.label(issue, text[:900], by=text[:39])
                hub.comment(issue, text, by=text[:39])
                await clock.sleep(600)
                [run] = (await call(app, "runs.list"))["items"]
                [row] = (await call(app, "tickets.list"))["items"]
                await call(app, "tickets.show", ticket=row["ticket"])
                await call(app, "trackers.test", name=row["tracker"])
                assert run["status"] == "done", run
                ours = [one["body"] for one in issue.comments if one["body"] != text]
                asked = [seen.path for seen in hub.seen]
        assert not any(re.search(r"@(?:everyone|acme)", body) for body in ours)
        assert not any(MARK in path or ".." in path for path in asked)
        assert MARK not in json.dumps(lines, default=str)
        assert len(row["title"]) <= 1_000
        assert list(Path.cwd().glob(f"*{MARK}*")) == []

    test()
