"""The python step: a function of the user's own, in a process with limits. Off unless the configuration allows it."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
from pydantic import Field, field_validator

from harken import run
from harken.errors import Refused
from harken.kit.json_schema import JsonSchema, SchemaError
from harken.run.compiler import Compiler, Strict
from harken.run.control_flow_exceptions import StepFailed
from harken.run.execute import Frame
from harken.run.plan import CompiledAct, DetailedOutput, StepKind
from harken.run.scratch_directory import excess, scratch_directory
from harken.task_cancellation import cancel_and_wait

__all__ = ["PYTHON"]

LARGEST_CODE = 100_000
LARGEST_INPUT = 4_000_000
LARGEST_ANSWER = 1_000_000
MOST_PRINTED = 10_000_000
KEPT_PRINTED = 65_536
_CHUNK = 65_536
LOOK_SECONDS = 0.1
_RUNNER = str(Path(run.__file__).with_name("code_runner.py"))
_NO_NETWORK_ON_MACOS = ["/usr/bin/sandbox-exec", "-p", "(version 1)(allow default)(deny network*)"]


class _Kept(msgspec.Struct):
    kept: list[str]


class _Told(msgspec.Struct):
    """What the runner says in its last line."""

    ok: Any = msgspec.UNSET
    error: str = "the code ended without an answer"
    line: int | None = None
    refused: str = ""


class PythonBlock(Strict):
    code: str = Field(min_length=1, max_length=LARGEST_CODE)
    input: Any = None
    input_schema: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    memory: int = Field(default=256, ge=64, le=8_192)
    network: bool = False

    @field_validator("code")
    @classmethod
    def _has_a_function(cls, value: str) -> str:
        try:
            tree = ast.parse(value, "code")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            raise ValueError(f"this is not Python{line}: {getattr(error, 'msg', type(error).__name__)}") from None
        found = next((one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == "run"), None)
        if found is None or len(found.args.posonlyargs) + len(found.args.args) != 1:
            raise ValueError("there is no function run with one parameter: def run(input):")
        return value


def _python(params: PythonBlock, compiler: Compiler) -> CompiledAct:
    given = compiler.value(params.input, "input")
    accepts, returns = _schema(compiler, "input_schema", params), _schema(compiler, "output", params)

    async def act(frame: Frame) -> DetailedOutput:
        _check_allowed(frame, params)
        value = given(frame.names)
        frame.input = {"input": value, **({"network": True} if params.network else {})}
        if accepts is not None and (problem := accepts.problem(value)):
            raise StepFailed(f"its input does not fit: {problem}")
        answer, details = await _execute(params, value)
        if returns is not None and (problem := returns.problem(answer)):
            raise StepFailed(f"what it returned does not fit: {problem}", output=details)
        return DetailedOutput(answer, details)

    return CompiledAct(act=act)


def _schema(compiler: Compiler, name: str, params: PythonBlock) -> JsonSchema | None:
    schema = getattr(params, name)
    if schema is None:
        return None
    try:
        return JsonSchema(schema)
    except SchemaError as error:
        compiler.problem(error.message, name, *error.path)
        return None


def _check_allowed(frame: Frame, params: PythonBlock) -> None:
    allowed = frame.environment.allow_python
    if not allowed:
        raise Refused("python steps are off", fix="Set steps.allow_python: true in harken.yaml to allow them")
    if params.network and allowed != "network":
        fix = "Set steps.allow_python: network in harken.yaml to allow it"
        raise Refused("python steps may not use the network", fix=fix)


async def _execute(params: PythonBlock, value: Any) -> tuple[Any, dict[str, Any]]:
    asked = json.dumps({"code": params.code, "input": value}).encode() + b"\n"
    if len(asked) > LARGEST_INPUT:
        raise StepFailed(f"its input has more than {LARGEST_INPUT:,} bytes")
    async with scratch_directory() as folder:
        process = await _start(params, folder)
        assert process.stdin and process.stdout and process.stderr
        watching = asyncio.create_task(_end_at_excess(process, folder))
        try:
            # a process that is gone before it has read everything is told by its exit code
            with contextlib.suppress(ConnectionError):
                process.stdin.write(asked)
                await process.stdin.drain()
            (told, too_long), (printed, too_much) = await _read_both(process)
            code = await process.wait()
            excessive = await watching
        finally:
            await _kill(process)
            await cancel_and_wait([watching])
    shown = printed[:KEPT_PRINTED].decode("utf-8", "replace")
    details: dict[str, Any] = {"printed": shown, "truncated": len(printed) > KEPT_PRINTED}
    printing = f"printed more than {MOST_PRINTED:,} bytes" if too_much else ""
    returning = f"returned more than {LARGEST_ANSWER:,} bytes" if too_long else ""
    if what := printing or returning or excessive:
        raise StepFailed(f"the code {what}, and was ended", output=details)
    return _answer(told, code, details), details


def _answer(told: bytes, code: int, details: dict[str, Any]) -> Any:
    kept, _, text = told.partition(b"\n")
    try:
        details["confined"] = msgspec.json.decode(kept, type=_Kept).kept
        answer = msgspec.json.decode(text, type=_Told)
    except (msgspec.DecodeError, RecursionError):
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise StepFailed(f"the code ended without an answer ({ended})", output=details) from None
    if answer.refused:
        raise Refused(answer.refused, fix="Set network: true on the step if it may use the network")
    if answer.ok is msgspec.UNSET:
        where = f"line {answer.line}: " if answer.line else ""
        raise StepFailed(f"{where}{answer.error}", output=details)
    return answer.ok


async def _start(params: PythonBlock, folder: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-I", "-B", "-X", "utf8", _RUNNER]
    command += [str(os.getpid()), str(params.memory), "1" if params.network else "0"]
    if sys.platform == "darwin" and not params.network:
        command = [*_NO_NETWORK_ON_MACOS, *command]
    # nothing of our environment: it has tokens
    variables = {"PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
    return await asyncio.create_subprocess_exec(
        *command, env=variables, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )


async def _read_both(process: asyncio.subprocess.Process) -> tuple[tuple[bytes, bool], tuple[bytes, bool]]:
    """What it answered and what it printed; at a limit the process is ended at once."""

    async def read(stream: asyncio.StreamReader, most: int, kept: int) -> tuple[bytes, bool]:
        found, seen = bytearray(), 0
        while chunk := await stream.read(_CHUNK):
            seen += len(chunk)
            found += chunk[: max(0, kept - len(found))]
            if seen > most:
                _signal(process)
                return bytes(found), True
        return bytes(found), False

    assert process.stdout and process.stderr
    answer = read(process.stdout, LARGEST_ANSWER, LARGEST_ANSWER + 1)
    return await asyncio.gather(answer, read(process.stderr, MOST_PRINTED, KEPT_PRINTED + 1))


async def _end_at_excess(process: asyncio.subprocess.Process, folder: str) -> str:
    """End the process when it has filled its directory, and return with what; empty if it has not when it ends."""
    while True:
        ended = process.returncode is not None
        if found := await asyncio.to_thread(excess, folder, process.pid):
            _signal(process)
        if found or ended:
            return found
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), LOOK_SECONDS)


def _signal(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        _signal(process)
    await process.wait()


PYTHON = StepKind(name="python", params=PythonBlock, build=_python, timeout=30.0, detailed=True)
