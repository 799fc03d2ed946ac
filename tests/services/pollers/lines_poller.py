"""A poller for tests: shows the lines of a file, some at a time. What it does wrong stands in its config.

Each line is JSON: {"id": ..., "occurred_at": ..., ...}. The cursor is the number of lines shown.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {}


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def tick(cursor: int | None) -> dict[str, Any]:
    lines = Path(CONFIG["file"]).read_text().splitlines()
    start, size = cursor or 0, CONFIG.get("page", 3)
    shown = [json.loads(line) for line in lines[start : start + size]]
    end = start + len(shown)
    return {"items": shown, "cursor": end, "more": end < len(lines)}


def misbehave(method: str) -> None:
    trick = CONFIG.get("trick", "") if method == CONFIG.get("during", "poll_tick") else ""
    if trick and CONFIG.get("once"):
        flag = Path(CONFIG["once"])
        trick = "" if flag.exists() else trick
        flag.touch()
    if trick == "hang":
        Path(CONFIG["file"]).with_suffix(".pid").write_text(str(os.getpid()))
        if CONFIG.get("stubborn"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if trick == "garbage":
        say("Traceback: this belongs on stderr")
    if trick == "gigabyte":
        for _ in range(1024):
            sys.stdout.write("x" * 1024 * 1024)
    if trick == "crash":
        sys.stderr.write("this is long ago\nno answer from https://shop.example/orders?user=ada&page=2\n")
        sys.stderr.write(f"cannot go on with {os.environ.get('SHOP_TOKEN', 'nothing')}\n")
        sys.exit(3)
    if trick == "chatter":
        sys.stderr.write("".join(f"line {number}\n" for number in range(100_000)))
    if trick == "slow":
        time.sleep(CONFIG["seconds"])


def answered(method: str, params: dict[str, Any]) -> Any:
    misbehave(method)
    if method == "initialize":
        CONFIG.update(params["config"])
        misbehave(method)
        return {"name": "ledger", "protocol": CONFIG.get("protocol", 1), "identity": "change"}
    if method == "poll_tick":
        return CONFIG["answer"] if "answer" in CONFIG else tick(params["cursor"])
    if method == "poll_list_tools":
        return {"tools": CONFIG["tools"]}
    if method == "poll_tool_call":
        return {"called": params, "pid": os.getpid()}
    return {}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
        error = CONFIG.get("error") if asked["method"] == CONFIG.get("during", "poll_tick") else None
        if error:
            answer["error"] = error
        elif asked["method"] == "environment":
            answer["result"] = dict(os.environ)
        else:
            answer["result"] = answered(asked["method"], asked["params"])
        say(json.dumps(answer))
        if asked["method"] == "shutdown":
            return


if __name__ == "__main__":
    main()
