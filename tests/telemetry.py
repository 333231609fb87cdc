"""OpenTelemetry in the process of the tests: providers that are set once, whose spans and measurements can be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

_exporter = InMemorySpanExporter()
# What is read is not there any more.
_reader = InMemoryMetricReader(
    preferred_temporality={Histogram: AggregationTemporality.DELTA, Counter: AggregationTemporality.DELTA}
)
_is_set_up = False


def set_up() -> None:
    """Set the providers of this process, which can be set only once, and forget what they have."""
    global _is_set_up
    if not _is_set_up:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_exporter))
        trace.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider([_reader]))
        _is_set_up = True
    _exporter.clear()
    _reader.get_metrics_data()


def spans(*, own: bool = True) -> list[ReadableSpan]:
    """Return the spans that have ended, in the order of their ends; with ``own`` those of the package alone."""
    found = _exporter.get_finished_spans()
    return [span for span in found if not own or span.instrumentation_scope.name == "mcp_django"]


def measurements(name: str) -> list[Any]:
    """Return the points of a histogram since they were last read."""
    data = _reader.get_metrics_data()
    return [
        point
        for resource in (data.resource_metrics if data is not None else [])
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


@contextmanager
def ambient(name: str = "POST") -> Iterator[Any]:
    """Make a span the current one, as an instrumented HTTP server does."""
    with trace.get_tracer("tests").start_as_current_span(name) as span:
        yield span
