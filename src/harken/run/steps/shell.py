"""The shell step: off unless the configuration allows it; limited in time, output and environment variables."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Any

from pydantic import Field, field_validator

from harken.errors import Misconfigured, Refused
from harken.run.compiler import Compiler, Strict
from harken.run.control_flow_exceptions import StepFailed
from harken.run.execute import Frame
from harken.run.plan import CompiledAct, DetailedOutput, StepKind

__all__ = ["SHELL"]

MAX_OUTPUT = 1_000_000
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
_CHUNK = 65_536


class ShellBlock(Strict):
    command: str | list[str]
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    stdin: str | None = None

    @field_validator("command")
    @classmethod
    def _no_templates_in_scripts(cls, value: str | list[str]) -> str | list[str]:
        if not value:
            raise ValueError("is empty")
        if isinstance(value, str) and "{{" in value:
            # event text inside a script would be executed by the shell
            raise ValueError("a script cannot hold templates: pass values through env:, or write the command as a list")
        return value


def _shell(params: ShellBlock, compiler: Compiler) -> CompiledAct:
    script = params.command if isinstance(params.command, str) else None
    command = compiler.value(["/bin/sh", "-c", script] if script is not None else params.command, "command")
    env, cwd = compiler.value(params.env, "env"), compiler.value(params.cwd, "cwd")
    stdin = compiler.value(params.stdin, "stdin")

    async def act(frame: Frame) -> DetailedOutput:
        if not frame.environment.allow_shell:
            raise Refused("shell steps are off", fix="Set steps.allow_shell: true in harken.yaml to allow them")
        names = frame.names
        given = {name: str(value) for name, value in env(names).items()}
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        variables = {**inherited, **given, "HARKEN_RUN_ID": frame.execution.claimed.id, "HARKEN_STEP_KEY": frame.key}
        words, place, text = [str(word) for word in command(names)], cwd(names), stdin(names)
        shown = {"command": script if script is not None else words, "env": given, "cwd": place, "stdin": text}
        frame.input = {name: value for name, value in shown.items() if value not in (None, {})}
        return await _execute(words, variables, place, text)

    return CompiledAct(act=act)


async def _execute(command: list[str], env: dict[str, str], cwd: Any, stdin: Any) -> DetailedOutput:
    pipe = asyncio.subprocess.PIPE
    source = asyncio.subprocess.DEVNULL if stdin is None else pipe
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=env, cwd=cwd, stdin=source, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except (OSError, ValueError) as error:
        fix = "Check the command, that it may be executed, and cwd"
        raise Misconfigured(f"{command[0]} could not be started ({type(error).__name__})", fix=fix) from error
    try:
        text = None if stdin is None else str(stdin).encode()
        out, err, _ = await asyncio.gather(_read(process.stdout), _read(process.stderr), _feed(process.stdin, text))
        code = await process.wait()
    except BaseException:
        await _kill(process)
        raise
    facts = {"exit_code": code, "stderr": err[0], "truncated": out[1] or err[1]}
    if code != 0:
        raise StepFailed(f"{command[0]} ended with exit code {code}", output={**facts, "response": out[0]})
    return DetailedOutput(out[0], facts)


async def _read(stream: asyncio.StreamReader | None) -> tuple[str, bool]:
    """Read everything, because a full pipe would block the command, and keep the beginning."""
    assert stream is not None
    kept, truncated = bytearray(), False
    while chunk := await stream.read(_CHUNK):
        room = MAX_OUTPUT - len(kept)
        truncated = truncated or len(chunk) > room
        kept += chunk[:room]
    return kept.decode("utf-8", "replace"), truncated


async def _feed(stream: asyncio.StreamWriter | None, text: bytes | None) -> None:
    if stream is None or text is None:
        return
    # a command need not read its input
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(text)
        await stream.drain()
        stream.close()


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the command and every process it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


SHELL = StepKind(name="shell", params=ShellBlock, build=_shell, timeout=60.0, detailed=True)
