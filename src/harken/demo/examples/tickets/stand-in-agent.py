#!/usr/bin/env python3
"""A scripted stand-in for a coding agent, so that the pipelines can be tried without an account.

    stand-in-agent.py fix  [--resume SESSION] [--seconds N]    adds a note about the ticket, and commits it
    stand-in-agent.py scan [--resume SESSION] [--seconds N]    lists lines that look like secrets, and changes nothing

It does what a real one does: it reads .harken/ticket.json, tells its session and cost as lines of JSON, works in the
directory that it is started in, and hands in .harken/result.json. A ticket with the label `unclear` makes it ask.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SECRET = re.compile(r"(?i)\b(password|secret|token|api_key)\b\s*[:=]\s*[\"'][^\"']{6,}[\"']")
OURS = Path(".harken")


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def hand_in(**result: object) -> None:
    (OURS / "result.json").write_text(json.dumps(result))


def option(name: str, otherwise: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else otherwise


def work(ticket: dict[str, Any], seconds: float) -> None:
    """Look busy, and write now and then, as agents do."""
    for step in ("reading", "thinking", "writing"):
        tell(type="progress", ticket=ticket.get("number"), step=step)
        time.sleep(seconds / 3)


def git(*args: str) -> str:
    return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout


def fix(ticket: dict[str, Any]) -> None:
    answer = (OURS / "answers.md").read_text() if (OURS / "answers.md").exists() else ""
    if "unclear" in (ticket.get("labels") or []) and not answer:
        hand_in(status="waiting", questions=["What should happen instead?"])
        return
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(ticket.get("number") or ticket.get("ref") or "ticket")).strip("-")
    note = Path("fixes") / f"{name}.md"
    note.parent.mkdir(exist_ok=True)
    note.write_text(f"# {ticket.get('title', '')}\n\nA real agent would have repaired it here.\n\n{answer}")
    git("add", "--", str(note))
    # a ticket that is run again finds its branch as the last run left it
    if git("status", "--porcelain", "--", str(note)):
        git("commit", "--quiet", "--message", f"Note about {name}")
    hand_in(status="done", summary=f"Wrote {note}.")


def scan() -> None:
    found = []
    for name in git("ls-files").splitlines():
        lines = Path(name).read_text(errors="replace").splitlines() if Path(name).is_file() else []
        found += [f"{name}:{number}" for number, line in enumerate(lines, 1) if SECRET.search(line)]
    shown = ", ".join(found[:20]) or "none"
    hand_in(status="done", summary=f"Lines that look like secrets: {shown}.")


def main() -> int:
    ticket = json.loads((OURS / "ticket.json").read_text())
    session = option("--resume", "stand-in-1")
    tell(type="system", subtype="init", session_id=session)
    work(ticket, float(option("--seconds", "0.3")))
    scan() if sys.argv[1:2] == ["scan"] else fix(ticket)
    tell(type="result", session_id=session, total_cost_usd=0.01, usage={"input_tokens": 1200, "output_tokens": 80})
    return 0


if __name__ == "__main__":
    sys.exit(main())
