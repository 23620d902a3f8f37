"""The destinations of a run's telemetry, validated before the target starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import urlsplit

from compilediag.errors import UsageError

EVERY_S = 15.0
"""Shortest period between pushes, and the default: backends limit the rate of a series."""

FROM_ENVIRONMENT = "env"
"""In place of a URL: as OpenTelemetry's own variables say."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """The destinations of a run's telemetry."""

    otlp: str | None = None
    """Base URL of a collector, or `FROM_ENVIRONMENT`."""
    prometheus_textfile: str | None = None
    every_s: float = EVERY_S


def make_settings(
    variables: Mapping[str, str],
    *,
    otlp: str | None = None,
    prometheus_textfile: str | None = None,
    telemetry_every: float | None = None,
) -> TelemetrySettings | None:
    """Make the telemetry that the options of a run request; None where they request none.

    `variables` is the environment, with OpenTelemetry's own settings.

    Raises:
        UsageError: a value cannot be used, or the package that does the work is not installed.
    """
    if prometheus_textfile is not None and not prometheus_textfile.endswith(".prom"):
        raise UsageError(
            f"prometheus_textfile must end in .prom, not {prometheus_textfile!r}: "
            "the node exporter reads no other"
        )
    folder = os.path.dirname(os.path.abspath(prometheus_textfile or "."))
    if prometheus_textfile is not None and not os.path.isdir(folder):
        raise UsageError(
            f"the folder of {prometheus_textfile} does not exist: name the folder that the node "
            "exporter reads"
        )
    if telemetry_every is not None and not EVERY_S <= telemetry_every < float("inf"):
        raise UsageError(
            f"telemetry_every must be at least {EVERY_S:g} seconds, not {telemetry_every:g}: "
            "monitoring limits how often a series may be written"
        )
    telemetry = TelemetrySettings(
        otlp=_check_otlp(otlp, variables),
        prometheus_textfile=prometheus_textfile,
        every_s=float(telemetry_every or EVERY_S),
    )
    if not (telemetry.otlp or prometheus_textfile):
        return None
    if telemetry.otlp is not None:
        _require("opentelemetry.exporter.otlp.proto.http", "OTLP", "otel")
    if telemetry.prometheus_textfile is not None:
        _require("prometheus_client", "Prometheus", "prometheus")
    return telemetry


def _require(module: str, what: str, extra: str) -> None:
    try:
        installed = find_spec(module) is not None
    except ImportError:  # a parent of it is not there
        installed = False
    if not installed:
        command = f"pip install 'compilediag[{extra}]'"
        raise UsageError(f"{what} needs packages that are not installed: {command}")


def _check_otlp(value: str | None, variables: Mapping[str, str]) -> str | None:
    if value != FROM_ENVIRONMENT:
        return _check_url(value)
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    protocol = variables.get(_PROTOCOL, "http/protobuf").strip() or "http/protobuf"
    if protocol != "http/protobuf":
        raise UsageError(
            f"{_PROTOCOL} is {protocol}, and compilediag speaks http/protobuf only: name the "
            "collector's HTTP address, as in --otlp http://localhost:4318"
        )
    return value


def find_endpoint(variables: Mapping[str, str]) -> str:
    """Find where the environment sends metrics, for messages: without credentials."""
    named = next((variables[name] for name in _ENDPOINTS if variables.get(name)), None)
    return strip_credentials(named or "http://localhost:4318")


def strip_credentials(url: str) -> str:
    """Strip user, password, query and fragment of a URL, for messages."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if parts.scheme else host + parts.path


def _check_url(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, usable = None, False
    if parts is None or not usable:
        raise UsageError(f"otlp must be a URL such as http://localhost:4318, not {value!r}")
    if "@" in parts.netloc:
        raise UsageError(
            "otlp must hold no user and password, which other users of the machine can read: "
            "give OTLP its credentials in OTEL_EXPORTER_OTLP_HEADERS"
        )
    return value
