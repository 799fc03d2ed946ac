"""Nothing outside is called in a case: programs, agents, messages and requests are written down instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from harken.backends.sqlite import SqliteStore
from harken.simulation.case_runner import Summary, run_cases
from harken.testing import VirtualClock, virtual

SECRET = "xoxb-s3cr3t-of-the-installation-42"
MAIN = """\
models: {default: "openai:gpt-4o"}
steps: {allow_shell: true, allow_agents: true}
integrations:
  pager: {kind: webhook}
  company: {kind: slack, token: "${SLACK_TOKEN}"}
"""
FLOW = """\
name: everything
trigger:
  webhook: {id: in, scheme: api_key, secret: "${IN_KEY}", id_field: id}
steps:
  - id: program
    action: shell
    command: [touch, "{{.trigger.event.file}}"]
  - id: agent
    action: agent
    command: [touch, made-by-an-agent]
  - id: model
    action: llm
    prompt: hello
    output: {type: object, properties: {level: {type: integer}}}
  - id: message
    action: notify
    channel: pager
    to: https://pager.example/x
    text: "level {{.steps.model.response.level}}"
  - id: post
    action: company.post
    channel: "#ops"
    text: "${SLACK_TOKEN} {{.steps.program.response}}"
  - id: request
    action: http
    url: https://api.example/things
    method: GET
outputs: {found: "{{.steps.request.response.name}}", code: "{{.steps.program.exit_code}}"}
"""
HEAD = f"environment: {{SLACK_TOKEN: {SECRET}, IN_KEY: a-key-for-tests-only}}\ncases:\n"


def outcome(site: Path, case: str) -> Summary:
    for name in ("workflows", "tests"):
        (site / name).mkdir(exist_ok=True)
    (site / "harken.yaml").write_text(MAIN, "utf-8")
    (site / "workflows" / "everything.yaml").write_text(FLOW, "utf-8")
    (site / "tests" / "cases.yaml").write_text(HEAD + case, "utf-8")
    return run_cases(site)


def problems(summary: Summary) -> list[str]:
    return [problem.message for result in summary.results for problem in result.problems]


def test_every_kind_of_step_is_a_stand_in_that_answers_as_the_case_says(tmp_path: Path):
    file = tmp_path / "made-by-a-step"
    summary = outcome(
        tmp_path,
        f"""
  - name: all
    given: [{{event: {{id: a, file: {file}}}}}]
    answers:
      - {{step: program, answer: said by a program}}
      - {{step: model, answer: {{level: 3}}}}
      - {{step: request, answer: {{name: a thing}}}}
    expect:
      runs:
        - status: done
          output: {{found: a thing, code: 0}}
          steps:
            program: {{with: {{command: [touch, "{file}"]}}}}
            message: {{with: {{text: level 3}}}}
            post: {{with: {{text: "*** said by a program"}}}}
      calls:
        - {{action: shell, step: program}}
        - {{action: agent, step: agent}}
        - {{action: llm, step: model, with: {{prompt: hello}}}}
        - {{action: notify, step: message, with: {{channel: pager, to: "https://pager.example/x"}}}}
        - {{action: company.post, step: post, with: {{text: "*** said by a program"}}}}
        - {{action: http, step: request, with: {{method: GET}}}}
""",
    )

    assert problems(summary) == []
    assert not file.exists()


@pytest.mark.parametrize(("error", "status"), [("401", "dead"), ("429", "done"), ("503", "done")])
def test_an_answer_may_be_an_error(tmp_path: Path, error: str, status: str):
    summary = outcome(
        tmp_path,
        f"""
  - name: an error
    given: [{{event: {{id: a, file: x}}}}]
    answers:
      - {{action: company.post, error: {error}, times: 1}}
      - {{step: request, answer: {{name: a thing}}}}
    expect: {{runs: [{{status: {status}}}]}}
""",
    )

    assert problems(summary) == []


@virtual
async def test_a_store_in_memory_goes_on_from_its_image(clock: VirtualClock) -> None:
    store = SqliteStore.in_memory(clock)
    await store.put("kind", "name", {"value": 1})
    image = store.image()
    await store.put("kind", "name", {"value": 2})
    store.abandon()

    again = SqliteStore.in_memory(clock, image)
    found = await again.get("kind", "name")

    assert found is not None and found.value == {"value": 1}
    assert await SqliteStore.in_memory(clock).get("kind", "name") is None
    again.abandon()
