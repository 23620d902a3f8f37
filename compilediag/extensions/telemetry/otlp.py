"""Sends snapshots and spans to an OpenTelemetry collector: OTLP over HTTP, by its own SDK.

The SDK's exporter and tracer are used, not its background processors: those wait at exit without
limit for a receiver, and drop without a count. The SDK reads the standard variables itself:
endpoints, headers, certificates, compression, timeout, resource, sampler.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from compilediag._version import __version__
from compilediag.extensions.telemetry.metrics import Metric, MetricsSnapshot, iterate_points
from compilediag.extensions.telemetry.spans import EXIT_CODE, RUN_SPAN, ExportedSpan
from compilediag.extensions.telemetry.worker import PushFailed, Sink

SCOPE = "compilediag"
_LOGGER = "opentelemetry"


class OtlpSink(Sink):
    """A collector at a base URL, or where the standard variables say."""

    name = "otlp"
    takes_spans = True

    def __init__(self, url: str | None, where: str, resource: Mapping[str, str]) -> None:
        """`url`: base of `/v1/metrics` and `/v1/traces`, None for the environment's; `where`: the
        same for messages; `resource`: attributes, which those of the environment override."""
        self.where = where
        self._url = url
        self._attributes = dict(resource)
        self._log = _LastWarning()
        self._metrics: Any = None
        self._spans: Any = None
        self._tracer: Any = None
        self._finished: list[Any] = []
        self._resource: Any = None
        self._root: Any = None

    def open(self) -> None:
        """Import the SDK, which takes a while, and build the exporters."""
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self._log)
        logger.propagate = False  # nothing of it reaches the terminal
        exporters = "opentelemetry.exporter.otlp.proto.http"
        metrics: Any = import_module(f"{exporters}.metric_exporter")
        traces: Any = import_module(f"{exporters}.trace_exporter")
        base = None if self._url is None else self._url.rstrip("/")
        self._metrics = metrics.OTLPMetricExporter(endpoint=base and f"{base}/v1/metrics")
        self._spans = traces.OTLPSpanExporter(endpoint=base and f"{base}/v1/traces")
        resources: Any = import_module("opentelemetry.sdk.resources")
        environment = resources.OTELResourceDetector().detect()  # overrides what is ours
        ours = resources.Resource(self._attributes)
        self._resource = resources.Resource.create({}).merge(ours).merge(environment)
        trace: Any = import_module("opentelemetry.sdk.trace")
        finished = self._finished

        class Collect(trace.SpanProcessor):
            def on_end(self, span: Any) -> None:
                finished.append(span)

        provider = trace.TracerProvider(resource=self._resource, shutdown_on_exit=False)
        provider.add_span_processor(Collect())
        self._tracer = provider.get_tracer(SCOPE, __version__)

    def push(self, snapshot: MetricsSnapshot) -> None:
        """Send every metric in one request.

        Raises:
            PushFailed: the collector did not accept it.
        """
        if self._root is None:
            start = round(snapshot.started_unix * 1e9)
            self._root = self._tracer.start_span(RUN_SPAN, start_time=start)
        # The values of a snapshot as the SDK's own records.
        sdk: Any = import_module("opentelemetry.sdk.metrics.export")
        scopes: Any = import_module("opentelemetry.sdk.util.instrumentation")
        start, now = round(snapshot.started_unix * 1e9), round(snapshot.at_unix * 1e9)
        by_metric: dict[Metric, list[Any]] = {}
        for metric, value, labels in iterate_points(snapshot):
            since = start if metric.kind == "counter" else None
            point = sdk.NumberDataPoint(dict(labels), since, now, value)
            by_metric.setdefault(metric, []).append(point)
        metrics: list[Any] = []
        for metric, points in by_metric.items():
            data = sdk.Gauge(points)
            if metric.kind == "counter":
                data = sdk.Sum(points, sdk.AggregationTemporality.CUMULATIVE, is_monotonic=True)
            metrics.append(sdk.Metric(metric.name, metric.description, metric.unit, data))
        scope = scopes.InstrumentationScope(SCOPE, __version__)
        scoped = sdk.ScopeMetrics(scope=scope, metrics=metrics, schema_url="")
        data = sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scoped], "")])
        if self._metrics.export(data).name != "SUCCESS":
            raise PushFailed(self._log.take())

    def push_spans(self, spans: Sequence[ExportedSpan]) -> None:
        """Send spans in one request; every span is a child of that of the run."""
        api: Any = import_module("opentelemetry.trace")
        parent = api.set_span_in_context(self._root)
        for span in spans:
            if span.name == RUN_SPAN:
                made = self._root
            else:
                start = span.start_unix_ns
                made = self._tracer.start_span(span.name, context=parent, start_time=start)
            made.set_attributes(dict(span.attributes))
            if span.attributes.get(EXIT_CODE):
                made.set_status(api.Status(api.StatusCode.ERROR))
            made.end(end_time=span.end_unix_ns)
        finished, self._finished[:] = list(self._finished), []
        if finished and self._spans.export(finished).name != "SUCCESS":
            raise PushFailed(self._log.take())

    def get_warning(self) -> str | None:
        return self._log.message

    def close(self) -> None:
        """Close the connections, and restore the logger."""
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self._log)
        logger.propagate = True
        for exporter in (self._metrics, self._spans):
            if exporter is not None:
                exporter.shutdown()


class _LastWarning(logging.Handler):
    """The last warning of the SDK: its results do not contain the reason of a failure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.message: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.message = record.getMessage()

    def take(self) -> str:
        message, self.message = self.message, None
        return message or "the receiver did not take it"
