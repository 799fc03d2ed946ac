"""Taking out what does not count. An expression can go on for ever, so it runs in a process that can be ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from harken.errors import RetryLater

__all__ = ["without"]

SECONDS = 3.0
# the limit is for the case that we are killed: nobody would end it then
_PROGRAM = """
import json, re, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
except ImportError:
    pass
patterns, text = json.load(sys.stdin)
for pattern in patterns:
    text = re.sub(pattern, "", text, flags=re.MULTILINE)
json.dump(text, sys.stdout)
"""


async def without(text: str, patterns: Sequence[str]) -> str:
    """The text without what the patterns match, and without the lines that are empty then."""
    if not patterns or not text:
        return text
    given = msgspec.json.encode([patterns, text])
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM)
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate(given)
    except TimeoutError:
        message = f"the expressions of `ignore` took more than {SECONDS:.0f} s"
        raise RetryLater(message, reason="timeout", fix="Write them without nested repetitions such as (a+)+") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RetryLater(f"the process that applies `ignore` ended with {process.returncode}")
    lines = (line.strip() for line in msgspec.json.decode(said, type=str).split("\n"))
    return "\n".join(line for line in lines if line)
