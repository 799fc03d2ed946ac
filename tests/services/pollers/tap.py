"""A Singer tap for tests: sends the lines of a file as records of the stream `orders`. Its config says what goes wrong.

The state is the number of lines sent, told after every `every` records.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}, "at": {"type": "string", "format": "date-time"}}}
CATALOG = {
    "streams": [
        {
            "tap_stream_id": name,
            "stream": name,
            "schema": SCHEMA,
            "metadata": [
                {"breadcrumb": [], "metadata": {"replication-method": "INCREMENTAL"}},
                {"breadcrumb": ["properties", "id"], "metadata": {"inclusion": "automatic"}},
                {"breadcrumb": ["properties", "at"], "metadata": {"inclusion": "available"}},
            ],
        }
        for name in ("orders", "customers")
    ]
}


def say(message: Any) -> None:
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    sys.stdout.flush()


def misbehave(trick: str) -> None:
    if trick == "die":
        sys.stderr.write(f"cannot go on with {os.environ.get('SHOP_TOKEN')}\n")
        sys.exit(2)
    if trick == "garbage":
        say("warning: this belongs on stderr")
    if trick == "hang":
        time.sleep(600)
    if trick == "huge":
        sys.stdout.write('{"type": "RECORD", "stream": "orders", "record": {"id": "' + "x" * 64 * 1024 * 1024)


def main() -> None:
    reader = argparse.ArgumentParser()
    for option in ("--config", "--catalog", "--properties", "--state"):
        reader.add_argument(option)
    reader.add_argument("--discover", action="store_true")
    given, _ = reader.parse_known_args()
    config = json.loads(Path(given.config).read_text())
    if config.get("note"):
        seen = {
            name: json.loads(Path(path).read_text()) for name, path in vars(given).items() if path and path is not True
        }
        modes = {
            name: oct(os.stat(path).st_mode & 0o777) for name, path in vars(given).items() if path and path is not True
        }
        note = {"argv": sys.argv, "seen": seen, "modes": modes, "pid": os.getpid()}
        Path(config["note"]).write_text(json.dumps(note))
    if given.discover:
        misbehave(config.get("discovery", ""))
        say(json.dumps(CATALOG, indent=2))
        return
    for message in config.get("messages", ()):
        say(message)
    if "file" in config:
        send(config, json.loads(Path(given.state).read_text()) if given.state else {})


def send(config: dict[str, Any], state: dict[str, Any]) -> None:
    lines = Path(config["file"]).read_text().splitlines()
    start, every, left = state.get("lines", 0), config.get("every", 2), config.get("after", 10**9)
    say(
        {
            "type": "SCHEMA",
            "stream": "orders",
            "schema": SCHEMA,
            "key_properties": ["id"],
            "bookmark_properties": ["at"],
        }
    )
    for number, line in enumerate(lines[start:], start + 1):
        if left == 0:
            misbehave(config["trick"])
        left -= 1
        say({"type": "RECORD", "stream": "orders", "record": json.loads(line)})
        if every and number % every == 0:
            say({"type": "STATE", "value": {"lines": number}})
    if left == 0:
        misbehave(config["trick"])
    if every:
        say({"type": "STATE", "value": {"lines": len(lines)}})


if __name__ == "__main__":
    main()
