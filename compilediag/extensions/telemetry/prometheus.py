"""Exports snapshots to Prometheus by its own client: a text file, a push gateway, a page.

The text file is for the textfile collector of the node exporter; it is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from compilediag.extensions.telemetry.metrics import METRICS, MetricsSnapshot, iterate_points
from compilediag.extensions.telemetry.worker import Sink

JOB = "compilediag"
PUSH_TIMEOUT_S = 10.0


class _PrometheusSink(Sink):
    """A registry that holds the newest snapshot; every sample carries `labels`."""

    def __init__(self, where: str, labels: Mapping[str, str]) -> None:
        self.where = where
        self._labels = dict(labels)
        self._snapshot: MetricsSnapshot | None = None
        self._client: Any = None
        self._registry: Any = None

    def open(self) -> None:
        self._client = import_module("prometheus_client")
        self._registry = self._client.CollectorRegistry()
        self._registry.register(self)

    def push(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

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


class TextfileSink(_PrometheusSink):
    """A file that the node exporter reads; its name ends in `.prom`."""

    name = "textfile"

    def __init__(self, path: str, labels: Mapping[str, str]) -> None:
        super().__init__(f"the file {path}", labels)
        self._path = path

    def push(self, snapshot: MetricsSnapshot) -> None:
        """Replace the file atomically: a reader gets one whole page or another."""
        super().push(snapshot)
        self._client.write_to_textfile(self._path, self._registry)


class GatewaySink(_PrometheusSink):
    """A push gateway, which keeps the last page of a group until somebody deletes it."""

    name = "pushgateway"

    def __init__(self, url: str, where: str, grouping: Mapping[str, str]) -> None:
        super().__init__(where, {})
        self._url = url
        self._grouping = dict(grouping)

    def push(self, snapshot: MetricsSnapshot) -> None:
        super().push(snapshot)
        grouping = dict(self._grouping)
        self._client.push_to_gateway(self._url, JOB, self._registry, grouping, PUSH_TIMEOUT_S)


class ScrapeSink(_PrometheusSink):
    """A page of our own that Prometheus scrapes; it shows the newest snapshot."""

    name = "scrape"

    def __init__(self, host: str, port: int, labels: Mapping[str, str]) -> None:
        super().__init__(f"whoever scrapes {host}:{port}", labels)
        self._host, self._port = host, port
        self._server: Any = None

    def open(self) -> None:
        super().open()
        started = self._client.start_http_server(self._port, self._host, self._registry)
        self._server = started[0]

    def close(self) -> None:
        """Close the page with the run: Prometheus then reports `up` as 0."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
