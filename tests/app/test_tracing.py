"""Traces as a collector gets them: from a webhook to the step that asks a model is one tree."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
import structlog
from aiohttp import web

from harken.app import App
from harken.app.logs import set_up_logs
from harken.app.otlp import MOST_WAITING, SpanExporter, request_of
from harken.testing import HandClock
from harken.tracing import NO_TRACER, Span, SpanContext, Tracer, context_of
from tests.system.kill.outside_world import HOOKS, signed

SENDER = SpanContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
FLOW = """
name: hooks
trigger: {{{trigger}}}
steps:
  - {{id: sum, action: llm, prompt: "{{{{ event.id }}}}"}}
"""


@dataclass
class Collector:
    """Takes OTLP over HTTP and keeps the spans. `status` is what it answers."""

    url: str = ""
    status: int = 200
    spans: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        if self.status == 200:
            body = await request.json()
            for resource in body["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    self.spans += scope["spans"]
        return web.json_response({}, status=self.status)

    def named(self, beginning: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"].startswith(beginning)]

    def path_to_root(self, span: Mapping[str, Any]) -> list[str]:
        """The names of the span and those above it."""
        by_id = {one["spanId"]: one for one in self.spans}
        names = []
        found: Mapping[str, Any] | None = span
        while found is not None:
            names.append(found["name"])
            found = by_id.get(found.get("parentSpanId", ""))
        return names


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    made, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def write(directory: Path, collector: str, trigger: str = HOOKS, extra: str = "") -> None:
    (directory / "workflows").mkdir()
    (directory / "workflows" / "hooks.yaml").write_text(FLOW.format(trigger=trigger))
    tracing = f"tracing: {{endpoint: '{collector}', headers: {{X-Key: k}}}}\n" if collector else ""
    (directory / "harken.yaml").write_text(f"models: {{default: echo}}\n{tracing}{extra}")


async def post(app: App, id: str, **headers: str) -> int:
    body, signature = signed(id)
    async with aiohttp.ClientSession() as session:
        url = f"{app.url}/webhooks/generic/hooks"
        async with session.post(url, data=body, headers={**signature, **headers}) as reply:
            return reply.status


async def runs_done(app: App, count: int) -> None:
    async with asyncio.timeout(60):
        while (await app.store.counts()).get("runs_done", 0) < count:  # noqa: ASYNC110 - nothing tells the end of a run
            await asyncio.sleep(0.01)


def attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


async def test_from_a_webhook_to_the_step_that_asks_a_model_is_one_tree(tmp_path: Path) -> None:
    async with collecting() as collector:
        write(tmp_path, collector.url)
        async with App.start(tmp_path, port=0) as app:
            assert await post(app, "a", traceparent=str(SENDER)) == 202
            await runs_done(app, 1)
            [event] = (await app.store.events()).items
    [step] = collector.named("step sum")
    assert collector.path_to_root(step) == ["step sum", "run hooks", "commit", "POST /webhooks/generic/hooks"]
    assert {span["traceId"] for span in collector.spans} == {SENDER.trace_id}
    [first] = collector.named("POST")
    assert first["parentSpanId"] == SENDER.span_id
    said = attributes(step)
    assert (said["gen_ai.request.model"], said["harken.status"]) == ("echo", "ok")
    assert int(said["gen_ai.usage.input_tokens"]) > 0
    [run] = collector.named("run hooks")
    assert attributes(run)["harken.outcome"] == "finished"
    assert context_of(event.data) == SpanContext(SENDER.trace_id, collector.named("commit")[0]["spanId"])
    assert collector.headers[0]["X-Key"] == "k"


async def test_a_read_that_found_something_is_the_beginning_of_a_trace(tmp_path: Path) -> None:
    async with collecting() as collector:
        write(tmp_path, collector.url, "schedule: {every: 1s}")
        async with App.start(tmp_path, port=0) as app:
            await runs_done(app, 1)
    found = [collector.path_to_root(step) for step in collector.named("step sum")]
    assert found
    assert {tuple(path[:3]) for path in found} == {("step sum", "run hooks", "commit")}
    assert all(path[3].startswith("poll ") for path in found)


async def test_a_run_that_gathers_links_to_the_events_that_came_in_apart(tmp_path: Path) -> None:
    gathering = f"{HOOKS}, gather: {{digest: {{window: 1h, max: 2}}}}"
    async with collecting() as collector:
        write(tmp_path, collector.url, gathering)
        async with App.start(tmp_path, port=0) as app:
            for id in ("a", "b"):
                assert await post(app, id) == 202
            await runs_done(app, 1)
    [run] = collector.named("run hooks")
    commits = {(span["traceId"], span["spanId"]) for span in collector.named("commit")}
    assert len(commits) == 2
    assert {(link["traceId"], link["spanId"]) for link in run["links"]} == commits
    assert "parentSpanId" not in run


async def test_a_stranger_without_a_signature_writes_into_no_trace(tmp_path: Path) -> None:
    async with collecting() as collector:
        write(tmp_path, collector.url)
        async with App.start(tmp_path, port=0) as app:
            wrong = {"X-Signature-256": "sha256=00", "traceparent": str(SENDER)}
            assert await post(app, "a", **wrong) == 401
            assert await post(app, "b", traceparent="00-nonsense-01") == 202
            await runs_done(app, 1)
    assert SENDER.trace_id not in {span["traceId"] for span in collector.spans}
    assert len(collector.named("POST")) == 1


async def test_without_an_endpoint_nothing_is_traced_and_events_stay_as_they_came(tmp_path: Path) -> None:
    write(tmp_path, "")
    async with App.start(tmp_path, port=0) as app:
        assert app.worker.tracer is app.intake.committer.tracer is NO_TRACER
        assert await post(app, "a", traceparent=str(SENDER)) == 202
        await runs_done(app, 1)
        [event] = (await app.store.events()).items
    assert event.data == {"id": "a"}


async def test_what_a_collector_cannot_take_now_is_sent_later_and_what_it_refuses_is_dropped() -> None:
    async with collecting() as collector:
        exporter = SpanExporter(collector.url, HandClock())
        counts = {"exported": 0, "dropped": 0}
        exporter.on_exported = lambda count: counts.update(exported=counts["exported"] + count)
        exporter.on_dropped = lambda count: counts.update(dropped=counts["dropped"] + count)
        tracer = Tracer(HandClock(), Random(1), exporter.add)
        with structlog.testing.capture_logs() as lines:
            async with aiohttp.ClientSession() as session:
                with tracer.span("one"):
                    pass
                collector.status = 503
                assert await exporter._send_waiting(session) is False
                collector.status = 200
                assert await exporter._send_waiting(session) is True
                with tracer.span("two"):
                    pass
                collector.status = 400
                assert await exporter._send_waiting(session) is True
        assert counts == {"exported": 1, "dropped": 1}
        assert [line["event"] for line in lines] == ["tracing.failing", "tracing.recovered", "tracing.failing"]
    for _ in range(MOST_WAITING + 3):
        with tracer.span("many"):
            pass
    assert counts["dropped"] == 4


def test_a_line_of_the_log_has_the_ids_of_its_span(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("info", "json", lambda: ())
    tracer = Tracer(HandClock(), Random(1), lambda span: None)
    with tracer.span("work") as span:
        structlog.get_logger("x").info("inside")
    structlog.get_logger("x").info("outside")
    inside, outside = map(json.loads, capsys.readouterr().err.splitlines())
    assert (inside["trace_id"], inside["span_id"]) == (span.context.trace_id, span.context.span_id)
    assert "trace_id" not in outside


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (str(SENDER), SENDER),
        (
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            SpanContext(SENDER.trace_id, SENDER.span_id, False),
        ),
        ("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", SENDER),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", None),
        ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01", None),
        ("", None),
        (7, None),
    ],
)
def test_a_traceparent_is_read_as_w3c_writes_it(text: object, found: SpanContext | None) -> None:
    assert SpanContext.parse(text) == found


def test_messages_bring_their_context_in_a_field_or_in_their_headers() -> None:
    assert context_of({"traceparent": str(SENDER)}) == SENDER
    assert context_of({"_message": {"headers": {"traceparent": str(SENDER)}}}) == SENDER
    assert context_of({"_message": 7, "traceparent": {}}) is None


def test_a_trace_that_is_not_sampled_is_passed_on_and_not_told() -> None:
    told: list[Span] = []
    tracer = Tracer(HandClock(), Random(1), told.append, sample=0.0)
    with tracer.span("one") as one, tracer.span("two") as two:
        assert str(two.context).endswith("-00")
    assert (told, two.context.trace_id) == ([], one.context.trace_id)


def test_a_failure_is_told_by_its_name_alone() -> None:
    told: list[Span] = []
    tracer = Tracer(HandClock(), Random(1), told.append)
    with pytest.raises(ValueError, match="s3cret"), tracer.span("one"):
        raise ValueError("s3cret")
    [request] = request_of(told, "x")["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert request["status"] == {"code": 2, "message": "ValueError"}


async def test_the_next_system_goes_on_in_the_trace_that_came_in(tmp_path: Path) -> None:
    taken: list[Mapping[str, str]] = []

    async def take(request: web.Request) -> web.Response:
        taken.append(dict(request.headers))
        return web.json_response({})

    async with collecting() as collector:
        server = web.AppRunner(web.Application())
        server.app.router.add_post("/next", take)
        await server.setup()
        await web.TCPSite(server, "127.0.0.1", 0).start()
        write(tmp_path, collector.url)
        step = (
            f"  - {{id: tell, action: http, method: POST, url: 'http://127.0.0.1:{server.addresses[0][1]}/next',\n"
            "     allow_private_networks: true, headers: {traceparent: '{{.trigger.event.traceparent}}'}}\n"
        )
        flow = tmp_path / "workflows" / "hooks.yaml"
        flow.write_text(flow.read_text() + step)
        async with App.start(tmp_path, port=0) as app:
            assert await post(app, "a", traceparent=str(SENDER)) == 202
            await runs_done(app, 1)
        await server.cleanup()
    [headers] = taken
    sent = SpanContext.parse(next(value for name, value in headers.items() if name.lower() == "traceparent"))
    assert sent is not None
    assert (sent.trace_id, sent.span_id) == (SENDER.trace_id, collector.named("commit")[0]["spanId"])
    [told] = collector.named("step tell")
    assert collector.path_to_root(told)[1:] == ["run hooks", "commit", "POST /webhooks/generic/hooks"]
