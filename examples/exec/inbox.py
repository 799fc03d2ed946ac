#!/usr/bin/env python3
"""A poller for Harken's kind `exec`: the files of a directory. A file that is written anew is a change."""

import json
import os
import sys
from datetime import UTC, datetime

config = {}


def initialize(params):
    config.update(params["config"])
    if not config.get("directory"):
        raise Refusal(-32602, "config.directory is missing")
    return {"name": "inbox"}


def poll_tick(params):
    try:
        entries = [entry for entry in os.scandir(config["directory"]) if entry.is_file()]
    except OSError as error:
        raise Refusal(-32001, f"the directory cannot be read: {error.strerror}", retry_after=60) from error
    return {"items": [item(entry) for entry in entries], "cursor": None, "more": False}


def item(entry):
    written = datetime.fromtimestamp(entry.stat().st_mtime, UTC).isoformat()
    data = {"name": entry.name, "bytes": entry.stat().st_size}
    return {"id": entry.name, "state": written, "occurred_at": written, "type": "file.written", "data": data}


class Refusal(Exception):
    def __init__(self, code, message, **data):
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


METHODS = {"initialize": initialize, "poll_tick": poll_tick, "shutdown": lambda params: None}

for line in sys.stdin:
    asked = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    method = METHODS.get(asked["method"])
    try:
        if method is None:
            raise Refusal(-32601, "no such method")
        answer["result"] = method(asked["params"])
    except Refusal as refusal:
        answer["error"] = refusal.error
    # flush: Harken waits for the line
    print(json.dumps(answer), flush=True)
    if asked["method"] == "shutdown":
        break
