"""The python step: typed values in and out, and hostile code that the kernel keeps where it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from harken.clock import SystemClock
from harken.errors import Refused
from harken.run.compiled_workflows import check_workflow
from harken.run.control_flow_exceptions import StepFailed
from harken.run.steps.python import PythonBlock, _execute
from tests.run.world import running_world, steps

SUM = """
def run(input):
    print("adding", len(input["items"]))
    return {"total": sum(item["amount"] for item in input["items"]), "braces": f"{{{len(input)}}}"}
"""
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's confinement is that of Linux")


def python(code: str, **more: Any) -> dict[str, Any]:
    return {"action": "python", "id": "code", "code": textwrap.dedent(code), **more}


async def answer(body: str, value: Any = None, **more: Any) -> Any:
    """What a function with this body returns."""
    code = "def run(input):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    found, _ = await _execute(PythonBlock(code=code, **more), value)
    return found


async def test_values_keep_their_types_on_the_way_in_and_out(tmp_path: Path) -> None:
    workflow = steps(
        python(SUM, input={"items": "{{.inputs.items}}"}, output={"type": "object", "required": ["total"]}),
        outputs={"total": "{{.steps.code.response.total}}"},
    )
    async with running_world(SystemClock(), tmp_path, workflow, allow_python=True) as world:
        run = await world.end(items=[{"amount": 2}, {"amount": 3.5}])
        assert run.output == {"total": 5.5}
        record = run.journal[0]
        assert record.output["response"]["braces"] == "{1}"
        assert record.output["printed"] == "adding 2\n"
        assert record.input == {"input": {"items": [{"amount": 2}, {"amount": 3.5}]}}


@pytest.mark.parametrize(
    ("allowed", "network", "status"),
    [(False, False, "dead"), (True, False, "done"), (True, True, "dead"), ("network", True, "done")],
)
async def test_it_is_off_until_it_is_allowed_and_so_is_its_network(
    allowed: Any, network: bool, status: str, tmp_path: Path
) -> None:
    workflow = steps(python("def run(input): return 1", network=network))
    async with running_world(SystemClock(), tmp_path, workflow, allow_python=allowed) as world:
        run = await world.end()
        assert run.status == status
        assert ("steps.allow_python" in run.error) == (status == "dead")


@pytest.mark.parametrize(
    ("schemas", "message"),
    [
        ({"input_schema": {"type": "object", "required": ["id"]}}, "its input does not fit"),
        ({"output": {"type": "integer"}}, "what it returned does not fit"),
    ],
)
async def test_values_that_do_not_fit_fail_the_step(schemas: dict[str, Any], message: str, tmp_path: Path) -> None:
    workflow = steps(python("def run(input): return 'text'", input={}, on_error="ignore", **schemas))
    async with running_world(SystemClock(), tmp_path, workflow, allow_python=True) as world:
        run = await world.end()
        assert message in run.journal[0].error


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def run(input) return 1", "not Python in line 1"),
        ("x = 1", "no function run"),
        ("def run(): pass", "no function run"),
        ("async def run(input): pass", "no function run"),
        ("(" * 5_000, "not Python"),
    ],
)
def test_code_that_cannot_work_is_found_before_the_first_event(code: str, message: str) -> None:
    problems = check_workflow({"steps": [{"action": "python", "code": code}]})
    assert [message in problem.message for problem in problems] == [True]


def test_a_schema_that_is_none_is_found_before_the_first_event() -> None:
    step = {"action": "python", "code": "def run(input): pass", "output": {"type": "nonsense"}}
    assert check_workflow({"steps": [step]})[0].path[:3] == ("steps", 0, "output")


async def test_an_error_says_in_which_line_it_happened() -> None:
    with pytest.raises(StepFailed, match="line 3: KeyError: 'x'") as caught:
        await answer("y = 1\nreturn input['x']", {})
    assert "Traceback" in caught.value.output["printed"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {1, 2}", "no JSON"),
        ("return float('nan')", "no JSON"),
        ("x = []; x.append(x); return x", "no JSON"),
        ("import os; os._exit(3)", "without an answer .exit code 3"),
        ("import ctypes; ctypes.string_at(0)", "without an answer .signal 11"),
        ("return 'x' * 2_000_000", "returned more than 1,000,000 bytes"),
        ("while True: print('x' * 10_000)", "printed more than 10,000,000 bytes"),
        ("return len(bytearray(2_000_000_000))", "MemoryError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("f = lambda n: f(n + 1); f(0)", "RecursionError"),
        ("return '\\ud800'", "no JSON: UnicodeEncodeError"),
        ("raise ValueError('\\ud800')", r"line 2: ValueError: \\ud800"),
        ("import os; os.write(3, b'{\"kept\": []}\\n{}\\n'); os._exit(0)", "without an answer"),
        ("import os; os.write(3, b'{\"kept\": []}\\n' + b'[' * 100_000); os._exit(0)", "without an answer"),
    ],
)
async def test_whatever_it_does_instead_of_returning_a_value_is_told(body: str, message: str) -> None:
    with pytest.raises(StepFailed, match=message):
        await answer(body)


async def test_nothing_of_our_environment_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-secret")
    found = await answer("import os; return sorted(os.environ)")
    assert set(found) <= {"HOME", "LANG", "LC_CTYPE", "PATH", "TMPDIR"}


@linux_only
@pytest.mark.parametrize(
    "body",
    [
        "import os; return os.fork()",
        "import subprocess; return subprocess.run(['/bin/true']).returncode",
        "import os; os.execv('/bin/sh', ['sh', '-c', 'true'])",
        "import os; os.kill(os.getppid(), 9)",
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.prctl(1, 0, 0, 0, 0): raise PermissionError(ctypes.get_errno())",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    ],
    ids=["fork", "subprocess", "exec", "kill", "socket", "unix-socket", "outlive", "limits"],
)
async def test_other_processes_and_the_network_are_refused_by_the_kernel(body: str) -> None:
    with pytest.raises(StepFailed, match=r"PermissionError|not permitted|not allowed"):
        await answer(body)


SIGNALS = {
    "tgkill": "ctypes.CDLL(None).syscall({'x86_64': 234, 'aarch64': 131}[os.uname().machine], input, input, 9)",
    "owner-of-a-pipe": """
        fcntl.fcntl(reads, fcntl.F_SETOWN, input)
        fcntl.fcntl(reads, 10, 9)
        fcntl.fcntl(reads, fcntl.F_SETFL, os.O_ASYNC)
        os.write(writes, b"x")
        """,
    "owner-as-a-struct": """
        fcntl.fcntl(reads, 15, struct.pack("ii", 1, input))
        fcntl.fcntl(reads, fcntl.F_SETFL, os.O_ASYNC)
        os.write(writes, b"x")
        """,
    "owner-of-a-socket": """
        one, other = socket.socketpair()
        fcntl.ioctl(one, 0x8902, struct.pack("i", input))
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
        other.send(b"x")
        """,
}


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@linux_only
@pytest.mark.parametrize("signalling", SIGNALS.values(), ids=SIGNALS)
async def test_no_other_process_gets_a_signal(signalling: str, other: subprocess.Popen[bytes]) -> None:
    body = "import ctypes, fcntl, os, socket, struct\nreads, writes = os.pipe()\n" + textwrap.dedent(signalling)
    with contextlib.suppress(StepFailed):
        await answer(body, other.pid)
    assert other.poll() is None


@linux_only
async def test_it_signals_its_own_threads() -> None:
    with pytest.raises(StepFailed, match="signal 10"):
        await answer("import signal, threading; signal.pthread_kill(threading.get_ident(), 10)")


@linux_only
@pytest.mark.parametrize(
    "body",
    ["os.setpriority(os.PRIO_PROCESS, input, 5)", "os.sched_setaffinity(input, [0])", "os.chown(__file__, -1, -1)"],
)
async def test_how_others_are_scheduled_and_who_owns_files_is_refused(body: str) -> None:
    with pytest.raises(StepFailed, match="PermissionError"):
        await answer(f"import os; __file__ = os.__file__; {body}", os.getpid())


@linux_only
async def test_memory_that_would_stay_behind_is_refused() -> None:
    body = "return ctypes.CDLL(None).shmget(0, 4096, 0o1600)"
    numbers = await answer(f"import ctypes; {body}")
    assert numbers == -1


@linux_only
async def test_modes_of_files_stay_and_its_own_can_be_copied(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.touch(mode=0o600)
    body = """
    import os, pathlib, shutil
    os.chmod(input, 0o666)
    pathlib.Path("new").touch()
    shutil.copy2("new", "copy")
    return sorted(os.listdir("."))
    """
    assert await answer(body, str(theirs)) == ["copy", "new"]
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o600


@linux_only
async def test_a_fork_bomb_makes_no_process() -> None:
    body = """
    import os
    made = 0
    for _ in range(1_000):
        try:
            os.fork()
            made += 1
        except OSError:
            pass
    return made
    """
    assert await answer(body) == 0


@linux_only
async def test_threads_are_bounded_by_the_memory() -> None:
    body = """
    import threading
    event, made = threading.Event(), 0
    try:
        while made < 5_000:
            threading.Thread(target=event.wait, daemon=True).start()
            made += 1
    except (RuntimeError, MemoryError):
        pass
    return made
    """
    assert await answer(body) < 200


@linux_only
async def test_files_of_others_cannot_be_read_and_its_own_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    paths = [str(tmp_path / "secret"), f"/proc/{os.getpid()}/environ", "/etc/passwd"]
    body = """
    import os
    seen = []
    for path in input:
        try:
            seen.append(open(path, "rb").read(10).decode())
        except OSError as error:
            seen.append(type(error).__name__)
    open("own", "w").write("x")
    return {"seen": seen, "own": open("own").read(), "folder": os.getcwd()}
    """
    code = "def run(input):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    found, details = await _execute(PythonBlock(code=code), paths)
    if "files" not in details["confined"]:
        pytest.skip("this kernel has no Landlock")
    assert found["seen"] == ["PermissionError"] * 3
    assert found["own"] == "x"
    assert not Path(found["folder"]).exists()


FILLING = {
    "named": "for n in range(10): open(str(n), 'wb').write(bytes(1_000_000)); files.append(n)",
    "removed": """for n in range(10):
        files.append(open('x', 'wb', buffering=0)); files[-1].write(bytes(1_000_000)); os.unlink('x')""",
    "hidden": """ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    for n in range(10):
        files.append(open('x', 'wb', buffering=0)); files[-1].write(bytes(1_000_000)); os.unlink('x')""",
    "below": "os.makedirs('a/b'); os.chdir('a/b')\n    for n in range(10): open(str(n), 'wb').write(bytes(1_000_000))",
}


@linux_only
@pytest.mark.parametrize("filling", FILLING.values(), ids=FILLING)
async def test_code_that_fills_the_disk_is_ended(filling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harken.run.scratch_directory.MOST_WRITTEN", 5_000_000)
    code = f"import ctypes, os, time\ndef run(input):\n    files = []\n    {filling}\n    time.sleep(600)"
    with pytest.raises(StepFailed, match="the code wrote more than 5,000,000 bytes, and was ended"):
        await _execute(PythonBlock(code=code), None)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import os\nfor n in range(2_000): os.close(os.open(str(n), os.O_CREAT))", "made more than 1,000 files"),
        ("import os\nfor n in range(2_000): os.mkdir('d'); os.chdir('d')", "made more than 1,000 files"),
        ("import os\nfor n in range(40): os.mkdir('d' * 250); os.chdir('d' * 250)", "deeper than a path can name"),
    ],
    ids=["files", "depth", "names"],
)
async def test_what_was_written_is_looked_at_when_the_code_has_ended_too(body: str, message: str) -> None:
    with pytest.raises(StepFailed, match=message):
        await answer(body)


async def test_whatever_was_written_is_removed() -> None:
    body = """
    import os
    folder = os.getcwd()
    os.mkdir("0")
    os.mkdir("closed", 0)
    os.symlink("/", "link")
    for n in range(900):
        os.mkdir("1")
        os.chdir("1")
    open("2", "w").close()
    return folder
    """
    with tempfile.TemporaryDirectory() as elsewhere, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", elsewhere)
        assert os.path.dirname(await answer(body)) == elsewhere
        assert os.listdir(elsewhere) == []


async def test_five_files_of_the_largest_size_are_no_excess() -> None:
    assert await answer("for n in range(5): open(str(n), 'wb').write(bytes(16_000_000))\nreturn 1") == 1


async def test_the_network_is_there_where_it_is_allowed() -> None:
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    body = "import socket; return socket.create_connection(('127.0.0.1', input)).getpeername()[1]"
    assert await answer(body, port, network=True) == port
    await runner.cleanup()


async def test_a_module_of_the_standard_library_works() -> None:
    body = "import datetime, zoneinfo, re, statistics\nreturn str(zoneinfo.ZoneInfo('Europe/Berlin'))"
    assert await answer(body) == "Europe/Berlin"


async def test_at_the_timeout_it_is_killed(tmp_path: Path) -> None:
    workflow = steps(python("def run(input):\n    while True: pass", timeout="3s", on_error="ignore"))
    async with running_world(SystemClock(), tmp_path, workflow, allow_python=True) as world:
        run = await world.end()
        assert "3" in run.journal[0].error
    assert children() == []


async def test_an_input_that_is_too_large_is_refused() -> None:
    with pytest.raises(StepFailed, match="more than 4,000,000 bytes"):
        await answer("return 1", "x" * 5_000_000)


async def test_what_cannot_be_kept_from_the_network_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    told = b'{"kept": []}\n{"refused": "this machine cannot keep a program from the network"}\n'
    from harken.run.steps.python import _answer

    with pytest.raises(Refused, match="cannot keep"):
        _answer(told, 0, {})


PARENT = """
import asyncio
from harken.run.steps.python import PythonBlock, _execute
code = "def run(input):\\n    import time\\n    print('here')\\n    while True: time.sleep(0.1)"
asyncio.run(_execute(PythonBlock(code=code), None))
"""


@linux_only
def test_kill_9_of_the_parent_leaves_no_child() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT])
    child = wait_for(lambda: next(iter(children(parent.pid)), None))
    # only once it is confined: before that it is Python that starts
    wait_for(lambda: "Seccomp:\t2" in Path(f"/proc/{child}/status").read_text() or None)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not is_running(child) or None)


def children(of: int | None = None) -> list[int]:
    """Runners that are children of a process, ours if none is named."""
    found = []
    for folder in Path("/proc").iterdir() if sys.platform == "linux" else ():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes()
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"code_runner.py" in command and parent == (of or os.getpid()):
                found.append(int(folder.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(look: Any) -> Any:
    until = time.monotonic() + 60
    while (found := look()) is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


async def test_a_cancelled_step_leaves_no_process() -> None:
    task = asyncio.create_task(answer("while True: pass"))
    await asyncio.to_thread(wait_for, lambda: children() or None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == []
