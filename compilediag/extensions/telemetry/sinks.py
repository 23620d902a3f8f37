"""Destinations of snapshots, each by its own client: OpenTelemetry's SDK, and that of Prometheus.

Of OpenTelemetry's SDK the exporter is used (OTLP over HTTP), not its background reader: that waits
at exit without limit for a receiver. It reads the standard variables itself: endpoints, headers,
certificates, compression, timeout, resource. Prometheus gets a text file, which is for the textfile
collector of the node exporter and is replaced as a whole; newer ones take OTLP themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from compilediag._version import __version__
from compilediag.extensions.telemetry.metrics import (
    METRICS,
    Metric,
    MetricsSnapshot,
    iterate_points,
)

SCOPE = "compilediag"
_LOGGER = "opentelemetry"


class PushFailed(Exception):
    """A receiver did not accept a push; the text gives the reason."""


class Sink:
    """A destination of snapshots. `open`, `push` and `close` are called in one thread and may take
    long; what they raise costs the push, not the run."""

    name: str
    """A word: "otlp"."""
    where: str
    """For messages: "the OTLP collector at http://localhost:4318"; no credentials."""

    def open(self) -> None:
        """Prepare for pushes; called once, before the first."""

    def push(self, snapshot: MetricsSnapshot) -> None:
        """Send one snapshot."""
        raise NotImplementedError

    def get_warning(self) -> str | None:
        """Get what was logged about a push still in progress; called from another thread."""
        return None

    def close(self) -> None:
        """Release what `open` acquired; nothing waits for it."""


class OtlpSink(Sink):
    """A collector at a base URL, or where the standard variables say."""

    name = "otlp"

    def __init__(self, url: str | None, where: str, resource: Mapping[str, str]) -> None:
        """`url`: base of `/v1/metrics`, None for the environment's; `where`: the same for messages;
        `resource`: attributes, which those of the environment override."""
        self.where = where
        self._url = url
        self._attributes = dict(resource)
        self._log = _LastWarning()
        self._metrics: Any = None
        self._resource: Any = None

    def open(self) -> None:
        """Import the SDK, which takes a while, and build the exporter."""
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self._log)
        logger.propagate = False  # nothing of it reaches the terminal
        metrics: Any = import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
        base = None if self._url is None else self._url.rstrip("/")
        self._metrics = metrics.OTLPMetricExporter(endpoint=base and f"{base}/v1/metrics")
        resources: Any = import_module("opentelemetry.sdk.resources")
        environment = resources.OTELResourceDetector().detect()  # overrides what is ours
        ours = resources.Resource(self._attributes)
        self._resource = resources.Resource.create({}).merge(ours).merge(environment)

    def push(self, snapshot: MetricsSnapshot) -> None:
        """Send every metric in one request.

        Raises:
            PushFailed: the collector did not accept it.
        """
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

    def get_warning(self) -> str | None:
        return self._log.message

    def close(self) -> None:
        """Close the connection, and restore the logger."""
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self._log)
        logger.propagate = True
        if self._metrics is not None:
            self._metrics.shutdown()


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


class TextfileSink(Sink):
    """A file that the node exporter reads; its name ends in `.prom`. A registry of Prometheus's
    client holds the newest snapshot; every sample carries `labels`."""

    name = "textfile"

    def __init__(self, path: str, labels: Mapping[str, str]) -> None:
        self.where = f"the file {path}"
        self._path = path
        self._labels = dict(labels)
        self._snapshot: MetricsSnapshot | None = None
        self._client: Any = None
        self._registry: Any = None

    def open(self) -> None:
        self._client = import_module("prometheus_client")
        self._registry = self._client.CollectorRegistry()
        self._registry.register(self)

    def push(self, snapshot: MetricsSnapshot) -> None:
        """Replace the file atomically: a reader gets one whole page or another."""
        self._snapshot = snapshot
        self._client.write_to_textfile(self._path, self._registry)

    def collect(self) -> Iterator[Any]:
        """Collect the metrics; called by the registry, in the thread of whoever reads it."""
        if self._snapshot is None:
            return
        core: Any = import_module("prometheus_client.core")
        points = list(iterate_points(self._snapshot))
        for metric in METRICS:
            kind = "CounterMetricFamily" if metric.kind == "counter" else "GaugeMetricFamily"
            names = [*self._labels, *metric.labels]
            family = getattr(core, kind)(metric.prometheus, metric.description, labels=names)
            own_points = [point for point in points if point.metric == metric]
            for point in own_points:
                family.add_metric([*self._labels.values(), *point.labels.values()], point.value)
            if own_points:
                yield family
