"""A real receiver on loopback for the tests of telemetry: OTLP over HTTP."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass
class Collector:
    """Takes what comes, as `mode` says: "take", "refuse" (400), "busy" (503), "hang"."""

    mode: str = "take"
    metrics: list[Any] = field(default_factory=list)
    """`ExportMetricsServiceRequest`s, as opentelemetry-proto reads them."""
    headers: list[dict[str, str]] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    """Somebody has come."""
    release: threading.Event = field(default_factory=threading.Event)
    """Ends the hanging."""

    def __enter__(self) -> Collector:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.serve(self)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        self.asked.set()
        if self.mode == "hang":
            self.release.wait()
        if self.mode == "take":
            self._keep(request, body)
        code = {"refuse": 400, "busy": 503}.get(self.mode, 200)
        try:
            request.send_response(code)
            request.send_header("Content-Length", "0")
            request.end_headers()
        except OSError:  # whoever asked has not waited
            pass

    def _keep(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.headers.append({key.lower(): value for key, value in request.headers.items()})
        if request.path.endswith("/v1/metrics"):
            from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service

            self.metrics.append(service.ExportMetricsServiceRequest.FromString(body))

    # --- what was told -----------------------------------------------------------------------

    def values(self, request: Any) -> dict[str, float]:
        """The values of one request by name, or by name/label."""
        found: dict[str, float] = {}
        for metric in request.resource_metrics[0].scope_metrics[0].metrics:
            data = metric.sum if metric.HasField("sum") else metric.gauge
            for point in data.data_points:
                labels = (item.value.string_value for item in point.attributes)
                value = point.as_int if point.HasField("as_int") else point.as_double
                found["/".join((metric.name, *labels))] = value
        return found

    def resource(self) -> dict[str, str]:
        told = self.metrics[-1].resource_metrics[0].resource.attributes
        return {item.key: item.value.string_value for item in told}
