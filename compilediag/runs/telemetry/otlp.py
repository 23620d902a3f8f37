"""Readings and spans to an OpenTelemetry collector: OTLP over HTTP, by OpenTelemetry's own SDK.

The SDK's exporter and tracer are used, not its background processors: those wait at exit for as
long as a receiver pleases, and drop without a count. Standard variables are the SDK's to read:
endpoints, headers, certificates, compression, timeout, resource, sampler.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from compilediag.runs.telemetry.metrics import Metric, points_of
from compilediag.runs.telemetry.snapshot import MetricsSnapshot
from compilediag.runs.telemetry.spans import EXIT_CODE, RUN_SPAN, ExportedSpan
from compilediag.runs.telemetry.worker import NotTaken

SCOPE = "compilediag"
_LOGGER = "opentelemetry"


class OtlpSink:
    """A collector at a base URL, or where the standard variables say."""

    name = "otlp"
    takes_spans = True

    def __init__(self, url: str | None, where: str, resource: Mapping[str, str]) -> None:
        """All that can be known before anything is imported.

        Args:
            url: with `/v1/metrics` and `/v1/traces` below it; None: as the environment says.
            where: the same for the user.
            resource: attributes of all that is told; the environment's own come first.
        """
        self.where = where
        self._url = url
        self._attributes = dict(resource)
        self._said = _LastWarning()
        self._metrics: Any = None
        self._spans: Any = None
        self._tracer: Any = None
        self._finished: list[Any] = []
        self._resource: Any = None
        self._root: Any = None

    def open(self) -> None:
        """Imports the SDK, which takes a while, and builds the exporters."""
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self._said)  # and nothing of it reaches the terminal
        logger.propagate = False
        exporters = "opentelemetry.exporter.otlp.proto.http"
        metrics: Any = import_module(f"{exporters}.metric_exporter")
        traces: Any = import_module(f"{exporters}.trace_exporter")
        base = None if self._url is None else self._url.rstrip("/")
        self._metrics = metrics.OTLPMetricExporter(endpoint=base and f"{base}/v1/metrics")
        self._spans = traces.OTLPSpanExporter(endpoint=base and f"{base}/v1/traces")
        self._resource = _resource(self._attributes)
        self._open_tracer()

    def _open_tracer(self) -> None:
        trace: Any = import_module("opentelemetry.sdk.trace")
        finished = self._finished

        class Collect(trace.SpanProcessor):
            def on_end(self, span: Any) -> None:
                finished.append(span)

        provider = trace.TracerProvider(resource=self._resource, shutdown_on_exit=False)
        provider.add_span_processor(Collect())
        self._tracer = provider.get_tracer(SCOPE, _version())

    def push(self, reading: MetricsSnapshot) -> None:
        """One request with every metric."""
        if self._root is None:
            start = round(reading.started_unix * 1e9)
            self._root = self._tracer.start_span(RUN_SPAN, start_time=start)
        data = _metrics_data(reading, self._resource)
        if self._metrics.export(data).name != "SUCCESS":
            raise NotTaken(self._said.take())

    def push_spans(self, spans: Sequence[ExportedSpan]) -> None:
        """One request; every span is below that of the run."""
        api: Any = import_module("opentelemetry.trace")
        below = api.set_span_in_context(self._root)
        for span in spans:
            if span.name == RUN_SPAN:
                made = self._root
            else:
                start = span.start_unix_ns
                made = self._tracer.start_span(span.name, context=below, start_time=start)
            made.set_attributes(dict(span.attributes))
            if span.attributes.get(EXIT_CODE):
                made.set_status(api.Status(api.StatusCode.ERROR))
            made.end(end_time=span.end_unix_ns)
        finished, self._finished[:] = list(self._finished), []
        if finished and self._spans.export(finished).name != "SUCCESS":
            raise NotTaken(self._said.take())

    def trouble(self) -> str | None:
        return self._said.told

    def close(self) -> None:
        """Gives back the connections, and the logger as it was."""
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self._said)
        logger.propagate = True
        for exporter in (self._metrics, self._spans):
            if exporter is not None:
                exporter.shutdown()


class _LastWarning(logging.Handler):
    """Keeps the last thing that the SDK warned of: its results do not say why they failed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.told = record.getMessage()

    def take(self) -> str:
        told, self.told = self.told, None
        return told or "the receiver did not take it"


def _resource(ours: Mapping[str, str]) -> Any:
    """What the environment says of the resource comes before what we know of it."""
    sdk: Any = import_module("opentelemetry.sdk.resources")
    theirs = sdk.OTELResourceDetector().detect()
    return sdk.Resource.create({}).merge(sdk.Resource(dict(ours))).merge(theirs)


def _metrics_data(reading: MetricsSnapshot, resource: Any) -> Any:
    """The points of a reading as the SDK's own records."""
    sdk: Any = import_module("opentelemetry.sdk.metrics.export")
    scopes: Any = import_module("opentelemetry.sdk.util.instrumentation")
    start, now = round(reading.started_unix * 1e9), round(reading.at_unix * 1e9)
    by_figure: dict[Metric, list[Any]] = {}
    for figure, value, labels in points_of(reading):
        begun = start if figure.kind == "counter" else None
        point = sdk.NumberDataPoint(dict(labels), begun, now, value)
        by_figure.setdefault(figure, []).append(point)
    metrics = [_metric(sdk, figure, points) for figure, points in by_figure.items()]
    scope = scopes.InstrumentationScope(SCOPE, _version())
    told = sdk.ScopeMetrics(scope=scope, metrics=metrics, schema_url="")
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [told], "")])


def _metric(sdk: Any, figure: Metric, points: list[Any]) -> Any:
    if figure.kind == "counter":
        data = sdk.Sum(points, sdk.AggregationTemporality.CUMULATIVE, is_monotonic=True)
    else:
        data = sdk.Gauge(points)
    return sdk.Metric(figure.name, figure.says, figure.unit, data)


def _version() -> str:
    from compilediag._version import __version__

    return __version__
