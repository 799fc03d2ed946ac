"""The spans of runs and their steps: a run goes on in the trace of its event, or links to those that it gathered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harken.runs import Claimed, StepRecord
from harken.tracing import Span, SpanContext, Tracer, context_of

__all__ = ["note_record", "run_span", "step_span"]


@contextmanager
def run_span(tracer: Tracer, claimed: Claimed, workflow: str) -> Iterator[Span]:
    """A span for one try of the run."""
    contexts = [found for event in claimed.events if (found := _context(event.data)) is not None]
    single = contexts[0] if len(contexts) == 1 else None
    links = () if single is not None else tuple(dict.fromkeys(contexts))
    with tracer.span(
        f"run {workflow}",
        kind="consumer",
        parent=single,
        links=links,
        root=True,
        run_id=claimed.id,
        trigger=claimed.trigger,
        workflow=workflow,
        attempt=claimed.attempt,
        events=len(claimed.events),
    ) as span:
        if claimed.parent:
            span.note(parent_run=claimed.parent)
        yield span


def step_span(tracer: Tracer, path: str, action: str) -> Any:
    return tracer.span(f"step {path}", step=path, action=action)


def note_record(span: Span, record: StepRecord) -> None:
    """What the step came to; of a model also which it was and how many tokens it used."""
    span.note(status=record.status, retries=record.retries)
    if record.status == "failed":
        span.error = record.code or "failed"
    output = record.output if isinstance(record.output, Mapping) else {}
    usage = output.get("usage")
    if record.action == "llm" and isinstance(usage, Mapping):
        span.note(gen_ai__operation__name="chat", gen_ai__request__model=str(output.get("model", "")))
        names = {"input": "gen_ai.usage.input_tokens", "output": "gen_ai.usage.output_tokens"}
        for part, name in names.items():
            count = usage.get(f"{part}_tokens", usage.get(part))
            if isinstance(count, int):
                span.attributes[name] = count
    if record.tokens:
        span.note(tokens=record.tokens, usd=record.usd)


def _context(data: Any) -> SpanContext | None:
    return context_of(data) if isinstance(data, Mapping) else None
