"""Readings to Prometheus, by its own client library: a text file, a push gateway, a page to scrape.

The text file is for the textfile collector of the node exporter; it is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from compilediag.runs.telemetry.metrics import FIGURES, points_of
from compilediag.runs.telemetry.snapshot import MetricsSnapshot
from compilediag.runs.telemetry.spans import ExportedSpan

JOB = "compilediag"
PUSH_TIMEOUT_S = 10.0


class _Page:
    """A registry that holds one reading; `labels` stand at every sample."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._reading: MetricsSnapshot | None = None
        self._core: Any = None
        self.registry: Any = None

    def open(self) -> None:
        client: Any = import_module("prometheus_client")
        self._core = import_module("prometheus_client.core")
        self.registry = client.CollectorRegistry()
        self.registry.register(self)

    def show(self, reading: MetricsSnapshot) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Any]:
        """Called by the registry, in the thread of whoever asks it."""
        reading = self._reading
        if reading is None:
            return
        points = points_of(reading)
        for figure in FIGURES:
            kind = "CounterMetricFamily" if figure.kind == "counter" else "GaugeMetricFamily"
            names = [*self._labels, *figure.labels]
            family = getattr(self._core, kind)(figure.prometheus, figure.says, labels=names)
            found = [point for point in points if point.figure == figure]
            for point in found:
                values = [*self._labels.values(), *(point.labels[name] for name in figure.labels)]
                family.add_metric(values, point.value)
            if found:
                yield family


class TextfileSink:
    """A file that the node exporter reads; its name ends in `.prom`."""

    name = "textfile"
    takes_spans = False

    def __init__(self, path: str, labels: Mapping[str, str]) -> None:
        self.where = f"the file {path}"
        self._path = path
        self._page = _Page(labels)

    def open(self) -> None:
        self._page.open()

    def push(self, reading: MetricsSnapshot) -> None:
        """Writes beside the file, then takes its place: a reader sees one whole page or another."""
        self._page.show(reading)
        client: Any = import_module("prometheus_client")
        client.write_to_textfile(self._path, self._page.registry)

    def push_spans(self, spans: Sequence[ExportedSpan]) -> None:
        """Prometheus has no spans."""

    def trouble(self) -> str | None:
        return None

    def close(self) -> None:
        """Nothing is open between pushes."""


class GatewaySink:
    """A push gateway, which keeps the last page of a group until somebody deletes it."""

    name = "pushgateway"
    takes_spans = False

    def __init__(self, url: str, where: str, grouping: Mapping[str, str]) -> None:
        self.where = where
        self._url = url
        self._grouping = dict(grouping)
        self._page = _Page({})

    def open(self) -> None:
        self._page.open()

    def push(self, reading: MetricsSnapshot) -> None:
        self._page.show(reading)
        client: Any = import_module("prometheus_client")
        client.push_to_gateway(
            self._url, JOB, self._page.registry, dict(self._grouping), PUSH_TIMEOUT_S
        )

    def push_spans(self, spans: Sequence[ExportedSpan]) -> None:
        """Prometheus has no spans."""

    def trouble(self) -> str | None:
        return None

    def close(self) -> None:
        """Nothing is open between pushes."""


class ScrapeSink:
    """A page of our own that Prometheus scrapes; it shows the newest reading."""

    name = "scrape"
    takes_spans = False

    def __init__(self, host: str, port: int, labels: Mapping[str, str]) -> None:
        self.where = f"whoever scrapes {host}:{port}"
        self._host, self._port = host, port
        self._page = _Page(labels)
        self._server: Any = None

    def open(self) -> None:
        self._page.open()
        client: Any = import_module("prometheus_client")
        started = client.start_http_server(self._port, self._host, self._page.registry)
        self._server = started[0]

    def push(self, reading: MetricsSnapshot) -> None:
        self._page.show(reading)

    def push_spans(self, spans: Sequence[ExportedSpan]) -> None:
        """Prometheus has no spans."""

    def trouble(self) -> str | None:
        return None

    def close(self) -> None:
        """The page is gone with the run: Prometheus says `up` is 0."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
