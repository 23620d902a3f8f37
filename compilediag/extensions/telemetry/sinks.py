"""The sinks of a run, from its settings."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from compilediag.extensions.telemetry.otlp import OtlpSink
from compilediag.extensions.telemetry.prometheus import GatewaySink, ScrapeSink, TextfileSink
from compilediag.extensions.telemetry.settings import (
    FROM_ENVIRONMENT,
    TelemetrySettings,
    endpoint_of,
    without_credentials,
)
from compilediag.extensions.telemetry.worker import Sink


def sinks_for(
    settings: TelemetrySettings, variables: Mapping[str, str], *, lane: str, run_id: str
) -> list[Sink]:
    """One for each destination.

    `lane` is a label wherever the runs of a machine share a page; `run_id` is for OpenTelemetry
    alone: as a label it would start new series with each run.
    """
    host = socket.gethostname()
    sinks: list[Sink] = []
    if settings.otlp is not None:
        from_environment = settings.otlp == FROM_ENVIRONMENT
        where = endpoint_of(variables) if from_environment else without_credentials(settings.otlp)
        resource = {
            "service.name": lane,
            "service.instance.id": run_id,
            "host.name": host,
            "compilediag.lane": lane,
        }
        url = None if from_environment else settings.otlp
        sinks.append(OtlpSink(url, f"the OTLP collector at {where}", resource))
    if settings.prometheus_textfile is not None:
        sinks.append(TextfileSink(settings.prometheus_textfile, {"lane": lane}))
    if settings.pushgateway is not None:
        where = without_credentials(settings.pushgateway)
        grouping = {"lane": lane, "instance": host}
        gateway = f"the push gateway at {where}"
        sinks.append(GatewaySink(settings.pushgateway, gateway, grouping))
    if settings.prometheus_listen is not None:
        sinks.append(ScrapeSink(*settings.prometheus_listen, {"lane": lane}))
    return sinks
