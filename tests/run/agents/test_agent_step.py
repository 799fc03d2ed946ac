"""The agent step with real processes and real repositories."""

from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.clock import SystemClock
from harken.run.agents.workspace import CodeSource
from harken.run.compiled_workflows import check_workflow
from harken.runs import Park, Run
from tests.run.agents.scripts import (
    QUICK,
    agent,
    agent_world,
    end_of_ticket,
    git,
    lives,
    make_repository,
    numbers_in,
    script,
    start_ticket,
    until,
)
from tests.run.world import running_world, steps

USAGE = {"session_id": "s-1", "total_cost_usd": 0.25, "usage": {"input_tokens": 100, "output_tokens": 20}}
SAY = f"echo '{json.dumps(USAGE)}'"


def hand_in(**result: Any) -> str:
    return f"cat > .harken/result.json <<'END'\n{json.dumps(result)}\nEND"


def starts_in(run: Run) -> int:
    return max(int(record.output["starts"]) for record in run.journal if record.output and "starts" in record.output)


def spent_in(run: Run) -> tuple[int, float]:
    return sum(record.tokens for record in run.journal), sum(record.usd for record in run.journal)


async def test_an_agent_works_in_a_worktree_and_hands_in_its_result(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    body = f"echo fixed >> README.md\ngit commit -qam fix\n{SAY}\n" + hand_in(
        status="done", summary="repaired", pr_url="https://example.com/pr/1"
    )
    program = script(tmp_path / "agent", body)
    async with agent_world(tmp_path, agent(program, repository=str(repository), push=True)) as world:
        run = await end_of_ticket(world)

        record = run.journal[-1]
        assert (run.status, run.error) == ("done", "")
        assert record.output["response"] == record.output["summary"] == "repaired"
        assert record.output["pr_url"] == "https://example.com/pr/1"
        assert (record.output["branch"], record.output["base"]) == ("harken/12", "main")
        assert (record.output["session"], spent_in(run)) == ("s-1", (120, 0.25))
        assert git(repository, "rev-parse", "harken/12") == record.output["commit"]
        assert git(repository, "show", "harken/12:README.md") == "hello\nfixed"
        assert "session_id" in Path(record.output["artifact"]).read_text()


async def test_what_an_agent_used_is_charged_to_the_budget_of_its_trigger(tmp_path: Path) -> None:
    body = f"{SAY}\ntest -e half && exit 0; touch half; exit 1"
    step = agent(script(tmp_path / "agent", body), retry={"max_attempts": 2, "backoff": "10ms"})
    async with agent_world(tmp_path, step) as world:
        run = await end_of_ticket(world)
        [trigger] = await world.sqlite.triggers()
        assert (run.status, trigger.tokens_today, spent_in(run)) == ("done", 240, (240, 0.5))


async def test_changes_that_an_agent_did_not_commit_are_pushed_too_but_not_our_files(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    program = script(tmp_path / "agent", "echo new > new.txt")
    async with agent_world(tmp_path, agent(program, repository=str(repository), push=True)) as world:
        await end_of_ticket(world)
        assert git(repository, "ls-tree", "--name-only", "harken/12").split() == ["README.md", "new.txt"]


async def test_a_credential_that_does_not_last_is_made_for_the_clone_and_again_for_the_push(tmp_path: Path) -> None:
    repository, made = make_repository(tmp_path / "server"), tmp_path / "made"
    seen: list[bool] = []

    async def sign_in() -> str:
        seen.append(made.exists())
        return f"Authorization: Basic {len(seen)}"

    program = script(tmp_path / "agent", f"touch {made}; echo new > new.txt")
    host = {"code_of": lambda trigger: CodeSource(url=str(repository), sign_in=sign_in)}
    async with agent_world(tmp_path, agent(program, push=True), host=host) as world:
        run = await end_of_ticket(world)
    assert (run.status, run.error) == ("done", "")
    assert seen == [False, True]
    assert git(repository, "ls-tree", "--name-only", "harken/12").split() == ["README.md", "new.txt"]


async def test_agent_steps_are_off_until_they_are_allowed(tmp_path: Path) -> None:
    program = script(tmp_path / "agent", f"touch {tmp_path}/ran")
    async with running_world(SystemClock(), tmp_path, steps(agent(program))) as world:
        run = await world.end()
        assert (run.status, "steps.allow_agents" in run.error) == ("dead", True)
        assert not (tmp_path / "ran").exists()


async def test_an_exit_code_fails_the_run_at_once_and_shows_the_end_of_the_output(tmp_path: Path) -> None:
    program = script(tmp_path / "agent", f"{SAY}\nprintf '\\033[31mno such file\\033[0m\\n' >&2; exit 3")
    async with agent_world(tmp_path, agent(program)) as world:
        run = await end_of_ticket(world)

        record = run.journal[-1]
        assert (run.status, "exit code 3" in run.error, starts_in(run)) == ("failed", True, 1)
        assert "no such file" in record.output["tail"]
        assert "\x1b" not in record.output["tail"]
        assert (record.tokens, record.usd) == (120, 0.25)


async def test_retry_starts_it_again_with_its_session_in_its_worktree(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    body = f'echo "$@" >> {tmp_path}/started\ntest -e half && exit 0\ntouch half\n{SAY}\nexit 1'
    program = script(tmp_path / "agent", body)
    step = agent(
        [program, "begin"],
        resume=[program, "--resume", "{session}"],
        repository=str(repository),
        retry={"max_attempts": 2, "backoff": "10ms"},
    )
    async with agent_world(tmp_path, step) as world:
        run = await end_of_ticket(world)

        assert (run.status, starts_in(run)) == ("done", 2)
        assert (tmp_path / "started").read_text().splitlines() == ["begin", "--resume s-1"]
        assert spent_in(run) == (120, 0.25)


async def test_each_step_has_its_own_session_in_the_worktree_they_share(tmp_path: Path) -> None:
    body = f'echo "$1 [$HARKEN_SESSION]" >> {tmp_path}/started; touch $1; ls >> seen; {SAY}'
    program = script(tmp_path / "agent", body)
    first, second = agent([program, "fix"]), {**agent([program, "review"]), "id": "review"}
    async with agent_world(tmp_path, first, second) as world:
        run = await end_of_ticket(world)
        assert run.status == "done"
        assert (tmp_path / "started").read_text().splitlines() == ["fix []", "review []"]
        assert (Path(run.journal[-1].output["worktree"]) / "seen").read_text().split().count("fix") == 2


async def test_a_lost_claim_kills_the_agent_without_a_grace(tmp_path: Path) -> None:
    body = f"trap '' TERM; echo $$ > {tmp_path}/pids; while :; do sleep 0.1; done"
    step = agent(script(tmp_path / "agent", body))
    patient = msgspec.structs.replace(QUICK, agent_grace=600.0, claim_seconds=60.0)
    async with agent_world(tmp_path, step, timings=patient) as world:
        run_id = await start_ticket(world)
        await until(lambda: bool(numbers_in(tmp_path / "pids")))
        # somebody else ends the claim, as after a jump of the store's clock
        await world.sqlite.park(run_id, 1, Park(until=world.clock.now() + timedelta(hours=1)))
        began = world.clock.monotonic()
        await until(lambda: not lives(numbers_in(tmp_path / "pids")[0]))
        assert world.clock.monotonic() - began < 40, "the claim would have lasted for 50 seconds more"
        assert (await world.look(run_id)).status == "waiting"


async def test_at_the_timeout_it_ends_with_all_its_descendants(tmp_path: Path) -> None:
    # the second child leaves the process group and the session, and outlives its parent
    body = f"""
trap '' TERM
sleep 600 & echo $! >> {tmp_path}/pids
setsid sh -c 'trap "" TERM; echo $$ >> {tmp_path}/pids; (setsid sleep 600 & echo $! >> {tmp_path}/pids); sleep 600' &
echo $$ >> {tmp_path}/pids
while :; do sleep 1; done"""
    program = script(tmp_path / "agent", body)
    async with agent_world(tmp_path, agent(program, timeout="5s")) as world:
        run = await end_of_ticket(world)

        assert (run.status, "took longer than 5 s" in run.error) == ("failed", True)
        pids = numbers_in(tmp_path / "pids")
        assert len(pids) == 4
        assert [pid for pid in pids if lives(pid)] == []


async def test_what_an_agent_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    program = script(tmp_path / "agent", f"setsid sleep 600 > /dev/null 2>&1 & echo $! > {tmp_path}/pids")
    async with agent_world(tmp_path, agent(program)) as world:
        run = await end_of_ticket(world)
        assert run.status == "done"
        assert [pid for pid in numbers_in(tmp_path / "pids") if lives(pid)] == []


async def test_silence_is_a_stall_and_talking_is_not(tmp_path: Path) -> None:
    program = script(tmp_path / "agent", "for i in 1 2 3 4 5; do echo $i; sleep 1; done; sleep 600")
    async with agent_world(tmp_path, agent(program, stall="4s")) as world:
        run = await end_of_ticket(world)
        assert (run.status, "wrote nothing for 4 s" in run.error) == ("failed", True)
        assert run.journal[-1].output["tail"].splitlines() == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("answer", [{"approved": True, "comment": "Blue, of course."}, {"answer": "Blue, of course."}])
async def test_questions_park_the_run_until_a_person_answers_and_its_session_goes_on(
    answer: dict[str, Any], tmp_path: Path
) -> None:
    body = f"""
if [ "$1" = again ]; then cp .harken/answers.md {tmp_path}/answers; {hand_in(summary="done so")}
else {SAY}
{hand_in(status="waiting", questions=["Which colour?"])}
fi"""
    program = script(tmp_path / "agent", body)
    async with agent_world(tmp_path, agent([program, "first"], resume=[program, "again"])) as world:
        run_id = await start_ticket(world)
        run = await world.until(run_id, "waiting")
        asked = run.journal[-1]
        assert (run.waiting_for, asked.output["questions"], asked.usd) == ("approval", ["Which colour?"], 0.25)

        assert await world.sqlite.answer(run_id, {**answer, "by": "kim"})
        assert not await world.sqlite.answer(run_id, {"answer": "Red!", "by": "lou"})
        world.worker.nudge()
        run = await world.until(run_id)

        assert (run.status, run.journal[-1].output["response"], starts_in(run)) == ("done", "done so", 2)
        assert "Which colour?" in (tmp_path / "answers").read_text()
        assert "Blue, of course." in (tmp_path / "answers").read_text()


async def test_a_second_question_is_not_answered_by_the_first_answer(tmp_path: Path) -> None:
    program = script(tmp_path / "agent", f"{SAY}\n{hand_in(questions=['And now?'])}")
    async with agent_world(tmp_path, agent(program)) as world:
        run_id = await start_ticket(world)
        await world.until(run_id, "waiting")
        await world.sqlite.answer(run_id, {"approved": True, "comment": "this"})
        world.worker.nudge()
        await world.until(run_id, "running", "ready")
        run = await world.until(run_id, "waiting")
        assert starts_in(run) == 2

        await world.sqlite.answer(run_id, {"approved": False, "comment": "enough", "by": "kim"})
        world.worker.nudge()
        run = await world.until(run_id)
        assert (run.status, run.error) == ("failed", "step fix: rejected by kim: enough")


async def test_a_result_of_an_earlier_start_does_not_count(tmp_path: Path) -> None:
    body = f"test -e half && exit 0; touch half\n{hand_in(status='failed', summary='cannot')}"
    step = agent(script(tmp_path / "agent", body), retry={"max_attempts": 2, "backoff": "10ms"})
    async with agent_world(tmp_path, step) as world:
        run = await end_of_ticket(world)
        assert (run.status, run.journal[-1].output["status"], starts_in(run)) == ("done", "done", 2)


@pytest.mark.parametrize(
    "body",
    [
        'echo \'{"status": "great"}\' > .harken/result.json',
        "echo '[[[[' > .harken/result.json",
        "ln -s /etc/passwd .harken/result.json",
        "mkfifo .harken/result.json",
        "rm -r .harken && ln -s /etc .harken && exit 0; exit 1",
        "head -c 3000000 /dev/zero > .harken/result.json",
    ],
)
async def test_a_result_that_is_not_one_is_never_read(body: str, tmp_path: Path) -> None:
    step = agent(script(tmp_path / "agent", body), result=".harken/result.json", on_error="ignore")
    async with agent_world(tmp_path, step) as world:
        run = await end_of_ticket(world)
        assert "root:" not in json.dumps(run.journal[-1].output)
        linked = body.startswith("rm")
        assert run.journal[-1].status == ("ok" if linked else "failed")


async def test_a_stopped_worker_ends_the_agent_and_the_next_one_goes_on_with_its_session(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    body = f"""
echo "$@" >> {tmp_path}/started
if [ "$1" = again ]; then test -e half; exit $?; fi
touch half
{SAY}
echo $$ > {tmp_path}/pids
trap 'echo bye >> {tmp_path}/said; exit 0' TERM
while :; do sleep 0.1; done"""
    program = script(tmp_path / "agent", body)
    step = agent([program, "first"], resume=[program, "again", "{session}"], repository=str(repository))
    async with agent_world(tmp_path, step) as world:
        run_id = await start_ticket(world)
        await until(lambda: bool(numbers_in(tmp_path / "pids")))
        await world.worker.stop(0)
        assert not lives(numbers_in(tmp_path / "pids")[0])
        assert (tmp_path / "said").read_text() == "bye\n"
        stopped = await world.look(run_id)
        assert (stopped.status, stopped.attempt) == ("ready", 1)

        host = world.worker._environment.agents
        world.worker = world.add_worker(holder="w2", agents=host, timings=QUICK)
        world.work()
        run = await world.until(run_id)
        assert (run.status, starts_in(run)) == ("done", 2)
        assert (tmp_path / "started").read_text().splitlines() == ["first", "again s-1"]
        assert spent_in(run) == (120, 0.25)


async def test_a_cancelled_run_ends_its_agent_and_pushes_nothing(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    body = f"echo x > new.txt\necho $$ > {tmp_path}/pids\ntrap 'exit 0' TERM\nwhile :; do sleep 0.1; done"
    program = script(tmp_path / "agent", body)
    async with agent_world(tmp_path, agent(program, repository=str(repository), push=True)) as world:
        run_id = await start_ticket(world)
        await until(lambda: bool(numbers_in(tmp_path / "pids")))
        await world.sqlite.cancel(run_id)
        run = await world.until(run_id)
        assert run.status == "cancelled"
        assert not lives(numbers_in(tmp_path / "pids")[0])
        assert git(repository, "branch", "--list", "harken/*") == ""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_a_system_that_stops_all_processes_of_a_service_does_not_fail_the_run(tmp_path: Path) -> None:
    body = f'test "$HARKEN_START" = 2 && exit 0\necho $$ > {tmp_path}/pids\nwhile :; do sleep 0.1; done'
    async with agent_world(tmp_path, agent(script(tmp_path / "agent", body))) as world:
        run_id = await start_ticket(world)
        await until(lambda: bool(numbers_in(tmp_path / "pids")))
        pid = numbers_in(tmp_path / "pids")[0]
        supervisor = parent_of(pid)
        os.kill(pid, signal.SIGTERM)
        os.kill(supervisor, signal.SIGTERM)
        run = await world.until(run_id)
        assert (run.status, run.attempt, starts_in(run)) == ("done", 1, 2)


async def test_an_agent_dies_with_its_supervisor(tmp_path: Path) -> None:
    body = f"sleep 600 &\necho $! $$ > {tmp_path}/pids\nwait"
    async with agent_world(tmp_path, agent(script(tmp_path / "agent", body))) as world:
        run_id = await start_ticket(world)
        await until(lambda: len(numbers_in(tmp_path / "pids")) == 2)
        child, pid = numbers_in(tmp_path / "pids")
        os.kill(parent_of(pid), signal.SIGKILL)
        run = await world.until(run_id)
        assert (run.status, "was killed" in run.error) == ("failed", True)
        await until(lambda: not lives(pid) and not lives(child))


async def test_a_push_that_fails_is_tried_again_without_the_agent(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    away = tmp_path / "away"
    # the server is gone when the agent ends, and back when the run is tried again
    body = f"echo $$ >> {tmp_path}/pids; echo fixed > README.md; {SAY}\nmv {repository} {away}\n{hand_in(summary='ok')}"
    program = script(tmp_path / "agent", body)
    step = agent(program, repository=str(repository), push=True, retry={"max_attempts": 20, "backoff": "100ms"})
    async with agent_world(tmp_path, step) as world:
        run_id = await start_ticket(world)
        await until(away.exists)
        while (await world.look(run_id)).journal[-1].output.get("finished") is None:
            await world.clock.sleep(0.05)
        away.rename(repository)
        run = await world.until(run_id)

        assert (run.status, run.journal[-1].output["response"]) == ("done", "ok")
        assert git(repository, "show", "harken/12:README.md") == "fixed"
        assert (len(numbers_in(tmp_path / "pids")), starts_in(run), spent_in(run)) == (1, 1, (120, 0.25))


async def test_a_new_run_after_the_merge_gets_a_branch_of_its_own(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    program = script(tmp_path / "agent", "date +%N >> new.txt; git add new.txt; git commit -qm more")
    async with agent_world(tmp_path, agent(program, repository=str(repository), push=True)) as world:
        first = await end_of_ticket(world)
        second = await end_of_ticket(world)
        # somebody squashes the pull request into main
        tree, main = git(repository, "rev-parse", "harken/12^{tree}"), git(repository, "rev-parse", "main")
        squashed = git(repository, "commit-tree", tree, "-p", main, "-m", "squashed")
        git(repository, "update-ref", "refs/heads/main", squashed)
        third = await end_of_ticket(world)

        branches = [run.journal[-1].output["branch"] for run in (first, second, third)]
        assert branches == ["harken/12", "harken/12", "harken/12-r2"]
        assert git(repository, "rev-list", "--count", "main..harken/12-r2") == "1"
        assert git(repository, "rev-parse", "harken/12~1") == first.journal[-1].output["commit"]


def findings(**step: Any) -> list[str]:
    return [f"{problem.path[-1]}: {problem.message}" for problem in check_workflow(steps({**agent("claude"), **step}))]


@pytest.mark.parametrize(
    ("step", "key"),
    [
        ({"command": ["claude", "-p", "{{.trigger.event.title}}"]}, "command"),
        ({"command": ["claude", '{{index . "event" "title"}}']}, "command"),
        ({"resume": ["claude", "{{.steps.x.response}}"]}, "resume"),
        ({"command": ["claude", "--resume", "{session}"]}, "command"),
        ({"env": {"TITLE": "{{.trigger.event.title}}"}}, "env"),
        ({"env": {"GITHUB_TOKEN": "x"}}, "env"),
        ({"inherit": ["GITLAB_TOKEN"]}, "inherit"),
        ({"repository": "https://example.com/{{.trigger.event.repo}}.git"}, "repository"),
        ({"repository": "--upload-pack=touch /tmp/x"}, "repository"),
        ({"repository": "ext::sh -c id"}, "repository"),
        ({"repository": "https://me:secret@example.com/shop.git"}, "repository"),
        ({"base": "-x"}, "base"),
        ({"result": "../../etc/passwd"}, "result"),
        ({"command": "claude -p x"}, "command"),
    ],
)
def test_what_could_carry_a_strangers_text_into_a_command_is_a_finding(step: dict[str, Any], key: str) -> None:
    assert any(finding.startswith(f"{key}: ") for finding in findings(**step)), findings(**step)


async def test_a_branch_made_of_the_event_is_refused_unless_it_is_a_plain_name(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "server")
    step = agent("true", repository=str(repository), branch="{{.trigger.event.title}}")
    async with agent_world(tmp_path, step) as world:
        for title in ("--upload-pack=id", "a..b", "a b", "x.lock", "/etc", "$(id)"):
            run = await end_of_ticket(world, title=title)
            assert (run.status, "cannot be the name of a branch" in run.error) == ("dead", True)


async def test_an_agent_gets_named_variables_only_and_no_token_of_a_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp-by-name")
    monkeypatch.setenv("EDITOR_KEY", "harmless")
    monkeypatch.setenv("MY_COPY", "tracker-secret-1")
    monkeypatch.setenv("UNRELATED", "unrelated")
    program = script(tmp_path / "agent", f"env > {tmp_path}/env")
    step = agent(program, env={"API_KEY": "sk-1"}, inherit=["EDITOR_KEY", "MY_COPY"])
    host = {"tracker_secrets": lambda: frozenset({"tracker-secret-1"})}
    async with agent_world(tmp_path, step, host=host) as world:
        run = await end_of_ticket(world)

    seen = (tmp_path / "env").read_text()
    assert "API_KEY=sk-1" in seen
    assert "EDITOR_KEY=harmless" in seen
    assert [word for word in ("ghp-by-name", "tracker-secret-1", "unrelated") if word in seen] == []
    assert run.journal[-1].warnings == (
        "the variable MY_COPY was left out, because it holds the credential of a tracker",
    )
