"""The export of a supervised run: begun when the target has started, ended when it has ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping

from compilediag.extensions.telemetry.exporter import Exporter
from compilediag.extensions.telemetry.live_run import RunEnd
from compilediag.extensions.telemetry.otlp import OtlpSink
from compilediag.extensions.telemetry.prometheus import GatewaySink, ScrapeSink, TextfileSink
from compilediag.extensions.telemetry.settings import (
    FROM_ENVIRONMENT,
    TelemetrySettings,
    find_endpoint,
    strip_credentials,
)
from compilediag.extensions.telemetry.worker import Sink
from compilediag.runs.supervised.child import ExitInfo, SupervisedRun, TelemetryReport


def begin(run: SupervisedRun) -> Callable[[ExitInfo, str], TelemetryReport]:
    """Begin the export of a run in threads; the function that is returned ends it.

    The target runs by now: a fault of ours must not leave it alone, and is reported instead.
    """
    settings = run.options.telemetry
    assert isinstance(settings, TelemetrySettings)
    run_id = os.path.basename(run.run_dir)
    try:
        exporter = Exporter(
            run.run_dir,
            make_sinks(
                settings, run.variables, configuration=run.configuration_name, run_id=run_id
            ),
            settings.every_s,
            started_unix=run.started_unix,
            secrets=run.secrets,
        )
        exporter.start()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        note = f"telemetry did not begin, by a fault of compilediag: {reason}"
        return lambda ended, run_dir: TelemetryReport((note,), {})

    def end_export(ended: ExitInfo, run_dir: str) -> TelemetryReport:
        complete = ended.returncode == 0 and not (ended.interrupts or ended.timed_out)
        return exporter.stop(RunEnd(ended.exit_code, ended.wall_s, complete))

    return end_export


def make_sinks(
    settings: TelemetrySettings, variables: Mapping[str, str], *, configuration: str, run_id: str
) -> list[Sink]:
    """Make one sink for each destination.

    `configuration` is the label "lane" wherever the runs of a machine share a page; `run_id` is
    for OpenTelemetry alone: as a label it would start new series with each run.
    """
    host = socket.gethostname()
    sinks: list[Sink] = []
    if settings.otlp is not None:
        from_environment = settings.otlp == FROM_ENVIRONMENT
        where = find_endpoint(variables) if from_environment else strip_credentials(settings.otlp)
        resource = {
            "service.name": configuration,
            "service.instance.id": run_id,
            "host.name": host,
            "compilediag.lane": configuration,
        }
        url = None if from_environment else settings.otlp
        sinks.append(OtlpSink(url, f"the OTLP collector at {where}", resource))
    if settings.prometheus_textfile is not None:
        sinks.append(TextfileSink(settings.prometheus_textfile, {"lane": configuration}))
    if settings.pushgateway is not None:
        where = strip_credentials(settings.pushgateway)
        grouping = {"lane": configuration, "instance": host}
        gateway = f"the push gateway at {where}"
        sinks.append(GatewaySink(settings.pushgateway, gateway, grouping))
    if settings.prometheus_listen is not None:
        sinks.append(ScrapeSink(*settings.prometheus_listen, {"lane": configuration}))
    return sinks
