"""Prometheus metrics: counters of calls, gauges of this process, and the view that serves them.

Label values are known names: sites, methods of the protocol, tools, outcomes. Text from a client never makes a new
series. The module needs the extra ``prometheus``, so it is imported only where it is used.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.contrib.auth.models import AnonymousUser
from django.db import Error as DatabaseUnavailable
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from mcp_types.methods import CLIENT_REQUESTS
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client import generate_latest as rendered
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from ..conf import settings
from ..context.call_record import CallRecord
from ..models import Session, Stream, Task
from .gauges import levels

PREFIX: Final = "mcp_django"
# Seconds, as in OpenTelemetry's conventions for MCP.
BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
METHODS: Final = frozenset(method for method, _ in CLIENT_REQUESTS)
ENDS: Final = frozenset({"failed", "ok", "asked", "tried", "tool_error", "refused", "error", "cancelled"})
# Maximum number of reasons for refusals with a series of their own: a project could make reasons of clients' texts.
MAX_REASONS: Final = 50
OTHER: Final = "other"
PERMISSION: Final = "mcp_django.view_callentry"
OPEN: Final = (Task.State.WORKING.value, Task.State.INPUT_REQUIRED.value)
# Tasks that wait for a worker, that one has, and that wait for an answer.
OPEN_TASKS: Final = {
    "waiting": Count("pk", filter=Q(state=Task.State.WORKING.value, lease=None)),
    "running": Count("pk", filter=Q(state=Task.State.WORKING.value, lease__isnull=False)),
    "asking": Count("pk", filter=Q(state=Task.State.INPUT_REQUIRED.value)),
}
# Environment variable of prometheus_client: the directory in whose files several processes keep their counts.
DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"

CALLS: Final = Counter(
    f"{PREFIX}_calls",
    "Calls, by outcome; bad input does not count as failed.",
    ["site", "method", "tool", "outcome"],
)
SECONDS: Final = Histogram(
    f"{PREFIX}_call_duration_seconds", "Duration of calls.", ["site", "method", "tool"], buckets=BUCKETS
)
REFUSALS: Final = Counter(f"{PREFIX}_refusals", "Refused calls, by reason.", ["site", "reason"])
ROWS: Final = Counter(f"{PREFIX}_rows", "Rows that calls read or changed.", ["site", "tool", "kind"])
BYTES: Final = Counter(f"{PREFIX}_answer_bytes", "Bytes of answers.", ["site", "tool"])
QUERIES: Final = Counter(f"{PREFIX}_queries", "Queries of calls.", ["site", "tool"])
QUERY_SECONDS: Final = Counter(f"{PREFIX}_query_seconds", "Time of the queries of calls.", ["site", "tool"])

_reasons: set[str] = set()
# With several processes: this one's gauges, with their values at the end of its last call.
_shared: dict[str, Gauge] = {}


def observe(record: CallRecord) -> None:
    """Count a call that has ended."""
    site = record.site
    tool = record.target if record.method == "tools/call" else ""
    method = record.method if record.method in METHODS else OTHER
    end = "failed" if record.error_id else record.outcome.partition(":")[0]
    CALLS.labels(site, method, tool, end if end in ENDS else OTHER).inc()
    SECONDS.labels(site, method, tool).observe(record.duration / 1000)
    kind, _, reason = record.outcome.partition(":")
    if kind == "refused":
        REFUSALS.labels(site, _known(reason)).inc()
    for name, count in (("read", record.rows_read), ("changed", record.rows_changed)):
        if count:
            ROWS.labels(site, tool, name).inc(count)
    BYTES.labels(site, tool).inc(record.size)
    QUERIES.labels(site, tool).inc(record.queries)
    QUERY_SECONDS.labels(site, tool).inc(record.query_time / 1000)
    if DIRECTORY in os.environ:
        # The process that serves the metrics reports the sum of all processes' gauges.
        for level in levels():
            if level.name not in _shared:
                name = f"{PREFIX}_{level.name}"
                _shared[level.name] = Gauge(name, level.text, multiprocess_mode="livesum", registry=None)
            _shared[level.name].set(level.ask())


def _known(reason: str) -> str:
    if reason not in _reasons and len(_reasons) >= MAX_REASONS:
        return OTHER
    _reasons.add(reason)
    return reason


class Levels(Collector):
    """A ``Collector`` of the gauges of this process."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See ``Collector``."""
        for level in levels():
            yield GaugeMetricFamily(f"{PREFIX}_{level.name}", level.text, level.ask())


class Stored(Collector):
    """A ``Collector`` of the numbers of sessions, streams and tasks in the database."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See ``Collector``."""
        since = timezone.now() - timedelta(seconds=settings.SESSION_IDLE)
        live = Session._default_manager.filter(ended=False, seen__gt=since)
        try:
            sessions = live.count()
            running = Stream._default_manager.filter(state=Stream.State.RUNNING).count()
            asking = Stream._default_manager.filter(state=Stream.State.ASKING).count()
            open_tasks = Task.objects.filter(state__in=OPEN).aggregate(**OPEN_TASKS)
        except DatabaseUnavailable:
            return
        yield GaugeMetricFamily(f"{PREFIX}_sessions", "Sessions with stored state.", sessions)
        tasks = GaugeMetricFamily(f"{PREFIX}_tasks", "Calls that continue without a connection.", labels=["state"])
        tasks.add_metric(["running"], running)
        tasks.add_metric(["asking"], asking)
        yield tasks
        by_state = GaugeMetricFamily(f"{PREFIX}_open_tasks", "Tasks that have not ended.", labels=["state"])
        for state, count in open_tasks.items():
            by_state.add_metric([state], count)
        yield by_state


if DIRECTORY not in os.environ:
    REGISTRY.register(Levels())


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Serve all metrics of the project in Prometheus' text format.

    A request needs the ``metrics_token`` as bearer token, or a user who may view the log of calls.
    """
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if settings.TELEMETRY["metrics_token"] and scheme.lower() == "bearer":
        may_read = constant_time_compare(token.strip(), settings.TELEMETRY["metrics_token"])
    else:
        user = getattr(request, "user", None) or AnonymousUser()
        may_read = user.is_active and user.has_perm(PERMISSION)
    if not may_read:
        return HttpResponse(status=403)
    registry = REGISTRY
    stored = CollectorRegistry()
    if DIRECTORY in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
    stored.register(Stored())
    return HttpResponse(rendered(registry) + rendered(stored), content_type=CONTENT_TYPE_LATEST)
