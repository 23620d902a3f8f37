"""The receivers of a run, from what was wished for."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from compilediag.runs.telemetry.otlp import OtlpSink
from compilediag.runs.telemetry.prometheus import GatewaySink, ScrapeSink, TextfileSink
from compilediag.runs.telemetry.settings import (
    FROM_ENVIRONMENT,
    TelemetrySettings,
    endpoint_of,
    without_credentials,
)
from compilediag.runs.telemetry.worker import Sink


def receivers_of(
    wishes: TelemetrySettings, variables: Mapping[str, str], *, lane: str, run_id: str
) -> list[Sink]:
    """One for each place that was named.

    Args:
        wishes: the places.
        variables: the environment.
        lane: the name of the lane: a label wherever runs of a machine share a page.
        run_id: of this run, for OpenTelemetry alone: as a label it would make new series each time.
    """
    host = socket.gethostname()
    found: list[Sink] = []
    if wishes.otlp is not None:
        from_environment = wishes.otlp == FROM_ENVIRONMENT
        where = endpoint_of(variables) if from_environment else without_credentials(wishes.otlp)
        resource = {
            "service.name": lane,
            "service.instance.id": run_id,
            "host.name": host,
            "compilediag.lane": lane,
        }
        url = None if from_environment else wishes.otlp
        found.append(OtlpSink(url, f"the OTLP collector at {where}", resource))
    if wishes.prometheus_textfile is not None:
        found.append(TextfileSink(wishes.prometheus_textfile, {"lane": lane}))
    if wishes.pushgateway is not None:
        where = without_credentials(wishes.pushgateway)
        grouping = {"lane": lane, "instance": host}
        gateway = f"the push gateway at {where}"
        found.append(GatewaySink(wishes.pushgateway, gateway, grouping))
    if wishes.prometheus_listen is not None:
        found.append(ScrapeSink(*wishes.prometheus_listen, {"lane": lane}))
    return found
