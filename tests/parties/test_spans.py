"""Rounds as spans of OpenTelemetry, where a program has it, and no import of it elsewhere."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from sumus.parties.round import Invited
from sumus.parties.spans import Spans, spans

sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
processing = pytest.importorskip("opentelemetry.sdk.trace.export")


class Traced:
    """The interface of OpenTelemetry with a provider of its own, not the process's."""

    def __init__(self) -> None:
        from opentelemetry import trace

        self.seen = export.InMemorySpanExporter()
        self._provider = sdk.TracerProvider()
        self._provider.add_span_processor(processing.SimpleSpanProcessor(self.seen))
        self.set_span_in_context = trace.set_span_in_context

    def get_tracer(self, name: str) -> Any:
        return self._provider.get_tracer(name)


def outcome_of(seconds: dict[str, float]) -> Any:
    summed = type("Summed", (), {"survivors": frozenset({0, 2})})
    return type("RoundOutcome", (), {"seconds": seconds, "summed": summed})


def test_a_round_is_a_span_and_its_stages_are_its_children() -> None:
    traced = Traced()
    watcher, invited = Spans(traced), Invited(frozenset({0, 1, 2}), b"")
    watcher.round_begins(0, invited)  # and is aborted
    watcher.round_begins(0, invited)
    watcher.round_ends(outcome_of({"local": 0.25, "protocol": 0.5}))
    aborted, local, protocol, whole = traced.seen.get_finished_spans()
    assert aborted.attributes["sumus.aborted"]
    assert dict(whole.attributes) == {
        "sumus.round": 1,
        "sumus.invited": 3,
        "sumus.survivors": 2,
    }
    assert [span.name for span in (local, protocol)] == ["sumus.local", "sumus.protocol"]
    for stage in (local, protocol):
        assert stage.parent.span_id == whole.context.span_id
    assert local.end_time - local.start_time == 250_000_000
    assert protocol.start_time == local.end_time
    assert whole.end_time >= protocol.end_time


def test_nobody_who_does_not_use_it_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import os, sys\n"
        "from sumus.parties.spans import spans\n"
        "assert spans() == ()\n"
        "assert 'opentelemetry' not in sys.modules\n"
        "os.environ['OTEL_SERVICE_NAME'] = 'x'\n"
        "assert len(spans()) == 1\n"
    )
    for name in [name for name in __import__("os").environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    subprocess.run([sys.executable, "-c", program], check=True)
    assert len(spans()) == 1  # this process has
