"""Sinks that are down, slow or hang, and what real ones understand; nothing here is mocked."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from collector import Collector

from compilediag.errors import UsageError
from compilediag.extensions.telemetry import exporter
from compilediag.extensions.telemetry.metrics import METRICS, MetricsSnapshot
from compilediag.extensions.telemetry.settings import (
    TelemetrySettings,
    find_endpoint,
    make_settings,
)
from compilediag.extensions.telemetry.sinks import Sink
from compilediag.runs.supervised.child import ExitInfo
from compilediag_harness.base.journal import Journal
from compilediag_harness.wire import ProcessStarted, encode

START = 1_700_000_000.0
SNAPSHOT = MetricsSnapshot(
    START + 60,
    START,
    wall_s=60.0,
    processes=1,
    compiles=4,
    recompiles=3,
    compile_s={"first": 1.5, "recompile": 0.75},
    steps=100,
    goodput_s=45.0,
    goodput=0.75,
    badput_s={"eval": 10.0, 'o"dd\\\n': 5.0},
)
LAST = replace(SNAPSHOT, active=False, exit_code=3)
TIMEOUT_S = 30.0
"""A limit for what must happen, not a pause."""


@pytest.fixture
def collector():
    pytest.importorskip("opentelemetry.proto")
    with Collector() as made:
        yield made


def fed(
    settings: TelemetrySettings, snapshots: Sequence[MetricsSnapshot]
) -> list[exporter.ExportWorker]:
    """Every snapshot in turn, given to the receivers of `settings` until they are through."""
    sinks = exporter.make_sinks(settings, {}, configuration="train", run_id="20261121-train")
    workers = [exporter.ExportWorker(item, 0.0) for item in sinks]
    for item in workers:
        item.start()
        for snapshot in snapshots:
            item.offer(snapshot)
        item.finish()
    for item in workers:
        item.join(TIMEOUT_S)
    return workers


# --- OTLP ------------------------------------------------------------------------------------


def test_a_collector_gets_metrics(collector: Collector, monkeypatch) -> None:
    """Values, resource and headers arrive as OpenTelemetry's own proto reads them; the environment
    names the service."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=vision")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc")
    workers = fed(TelemetrySettings(otlp=collector.url), [LAST])
    stats = workers[0].get_stats()
    assert (stats.pushes, stats.last_taken) == (1, True)
    reported = collector.values(collector.metrics[-1])
    assert reported["compilediag.recompiles"] == 3
    assert reported["compilediag.goodput"] == 0.75
    assert reported["compilediag.compile.time/recompile"] == 0.75
    assert reported["compilediag.run.exit_code"] == 3
    resource = collector.resource()
    assert (resource["service.name"], resource["team"]) == ("mine", "vision")
    assert resource["service.instance.id"] == "20261121-train"
    assert all(headers["x-key"] == "abc" for headers in collector.headers)


def test_counters_are_cumulative_and_carry_their_unit(collector: Collector) -> None:
    """A counter is a monotonic sum from the start of the run, a gauge is none; all have units."""
    fed(TelemetrySettings(otlp=collector.url), [LAST])
    metrics = collector.metrics[-1].resource_metrics[0].scope_metrics[0].metrics
    by_name = {metric.name: metric for metric in metrics}
    for metric in METRICS:
        if metric.name in by_name:
            sent = by_name[metric.name]
            assert sent.unit == metric.unit
            assert sent.HasField("sum") == (metric.kind == "counter")
    recompiles = by_name["compilediag.recompiles"].sum
    assert (recompiles.aggregation_temporality, recompiles.is_monotonic) == (2, True)
    assert recompiles.data_points[0].start_time_unix_nano == int(START * 1e9)


def test_a_collector_that_refuses_is_counted_and_says_nothing(collector, capfd) -> None:
    """Each push that fails is counted with the reason; the terminal stays as it was, and so does
    the logging of OpenTelemetry."""
    collector.mode = "refuse"
    workers = fed(TelemetrySettings(otlp=collector.url), [LAST])
    stats = workers[0].get_stats()
    assert (stats.pushes, stats.pushes_failed) == (0, 1)
    assert not stats.last_taken
    assert "400" in stats.problem
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("opentelemetry").propagate
    assert not logging.getLogger("opentelemetry").handlers


# --- Prometheus ------------------------------------------------------------------------------


def samples(text: str) -> dict[tuple[str, str], float]:
    """What Prometheus's own parser reads: (name, labels) to value."""
    parser = pytest.importorskip("prometheus_client.parser")
    return {
        (sample.name, ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))):
            sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }  # fmt: skip


def test_the_textfile_is_read_by_prometheus(tmp_path: Path) -> None:
    """Names with their units, labels of any text escaped, a whole file and nothing beside it."""
    pytest.importorskip("prometheus_client")
    path = tmp_path / "train.prom"
    fed(TelemetrySettings(prometheus_textfile=str(path)), [SNAPSHOT, LAST])
    reported = samples(path.read_text(encoding="utf-8"))
    assert reported["compilediag_recompiles_total", "lane=train"] == 3
    assert reported["compilediag_goodput_ratio", "lane=train"] == 0.75
    assert reported["compilediag_run_active", "lane=train"] == 0
    assert reported["compilediag_badput_time_seconds", 'category=o"dd\\\n,lane=train'] == 5
    assert {name for name, _ in reported} <= {metric.prometheus for metric in METRICS}
    assert [item.name for item in tmp_path.iterdir()] == ["train.prom"]


def test_a_textfile_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The folder is gone: counted, with the system's reason."""
    pytest.importorskip("prometheus_client")
    workers = fed(
        TelemetrySettings(prometheus_textfile=str(tmp_path / "gone" / "train.prom")), [LAST]
    )
    stats = workers[0].get_stats()
    assert (stats.pushes, stats.pushes_failed) == (0, 1)
    assert "No such file" in str(stats.problem)


# --- the worker --------------------------------------------------------------------------------


class Slow(Sink):
    """A sink that waits to be let on."""

    name, where = "slow", "a slow sink"

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.snapshots: list[MetricsSnapshot] = []

    def open(self) -> None: ...

    def push(self, snapshot: MetricsSnapshot) -> None:
        self.snapshots.append(snapshot)
        self.asked.set()
        assert self.go_on.wait(TIMEOUT_S)

    def get_warning(self) -> str | None:
        return "it thinks"

    def close(self) -> None: ...


def test_newer_figures_replace_those_that_wait() -> None:
    """While a push hangs, newer snapshots take each other's place."""
    sink = Slow()
    feeding = exporter.ExportWorker(sink, 0.0)
    feeding.start()
    feeding.offer(SNAPSHOT)
    assert sink.asked.wait(TIMEOUT_S)
    feeding.offer(SNAPSHOT)
    feeding.offer(LAST)
    feeding.finish()
    sink.go_on.set()
    feeding.join(TIMEOUT_S)
    assert sink.snapshots == [SNAPSHOT, LAST]
    assert feeding.get_stats().pushes == 2


def test_a_receiver_that_hangs_is_left_behind() -> None:
    """`join` gives up; what it did not take counts as lost, with what it said meanwhile."""
    sink = Slow()
    feeding = exporter.ExportWorker(sink, 0.0)
    feeding.start()
    feeding.offer(LAST)
    assert sink.asked.wait(TIMEOUT_S)
    feeding.finish()
    feeding.join(0.0)
    stats = feeding.get_stats()
    assert (stats.pushes, stats.last_taken, stats.problem) == (0, False, "it thinks")
    sink.go_on.set()
    feeding.join(TIMEOUT_S)


def test_pushes_begin_a_period_apart() -> None:
    """By a clock that stands still there is a first push and none after it, until the run's end."""
    sink, now = Slow(), 100.0
    sink.go_on.set()
    feeding = exporter.ExportWorker(sink, 15.0, lambda: now)
    feeding.start()
    feeding.offer(SNAPSHOT)
    assert sink.asked.wait(TIMEOUT_S)
    sink.asked.clear()
    for _ in range(5):
        feeding.offer(SNAPSHOT)
    feeding.offer(LAST)
    feeding.finish()
    feeding.join(TIMEOUT_S)
    assert sink.snapshots == [SNAPSHOT, LAST]


# --- all together ----------------------------------------------------------------------------


def journal_in(folder: Path) -> Journal:
    opening = ProcessStarted(
        0.0, 1, 7, 6, 1, 2, (), "python", "/", "2026-11-20T14:45:00.500000Z", "3.11"
    )
    return Journal(str(folder), lambda: encode(opening))


def test_a_hanging_receiver_costs_the_end_of_the_run_a_bounded_time(tmp_path: Path) -> None:
    """One sink hangs and one works: the second gets the last figures, the first a note."""
    slow, quick = Slow(), Slow()
    quick.go_on.set()
    journal_in(tmp_path).close()
    exporter_thread = exporter.Exporter(str(tmp_path), [slow, quick], 15.0, started_unix=START)
    exporter_thread.start()
    reported = exporter_thread.stop(ExitInfo(7, 0, 1.0))
    slow.go_on.set()
    assert quick.snapshots[-1].active is False
    assert len(reported.notes) == 1
    assert "a slow sink" in reported.notes[0]
    assert "the last figures of the run were not taken" in reported.notes[0]
    assert reported.extension["slow"]["pushes"] == 1
    assert exporter.SHUTDOWN_TIMEOUT_S <= 2.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"otlp": "localhost:4318"}, "otlp must be a URL such as http://localhost:4318"),
        ({"otlp": "http://"}, "otlp must be a URL"),
        ({"otlp": "http://h:x/"}, "otlp must be a URL"),
        ({"otlp": "http://me:secret@h"}, "otlp must hold no user and password"),
        ({"otlp": "ftp://h"}, "otlp must be a URL"),
        ({"prometheus_textfile": "x.txt"}, "prometheus_textfile must end in .prom"),
        ({"prometheus_textfile": "no/such/x.prom"}, "the folder of no/such/x.prom does not exist"),
        (
            {"otlp": "http://h", "telemetry_every": 5.0},
            "telemetry_every must be at least 15 seconds",
        ),
        ({"otlp": "http://h", "telemetry_every": float("nan")}, "telemetry_every must be at least"),
    ],
)
def test_a_mistake_is_named_before_the_target_starts(settings, message: str) -> None:
    """Every value that cannot be used has its sentence, without the secret that stood in it."""
    with pytest.raises(UsageError) as raised:
        make_settings({}, **settings)
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_missing_package_is_one_sentence_with_its_remedy(monkeypatch) -> None:
    """What to install is said, for each of the two extras."""
    monkeypatch.setattr("compilediag.extensions.telemetry.settings.find_spec", lambda name: None)
    for settings, extra in (
        ({"otlp": "http://h:1"}, "otel"),
        ({"prometheus_textfile": "x.prom"}, "prometheus"),
    ):
        with pytest.raises(UsageError, match=rf"pip install 'compilediag\[{extra}\]'"):
            make_settings({}, **settings)


def test_standard_variables_switch_off_and_limit(monkeypatch) -> None:
    """OTEL_SDK_DISABLED is obeyed, a protocol that is not spoken named, no credential shown."""
    monkeypatch.setattr(
        "compilediag.extensions.telemetry.settings.find_spec", lambda name: object()
    )
    assert make_settings({"OTEL_SDK_DISABLED": "true"}, otlp="env") is None
    with pytest.raises(UsageError, match="speaks http/protobuf only"):
        make_settings({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, otlp="env")
    assert (
        find_endpoint({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:pw@h:1/x?k=1"}) == "http://h:1/x"
    )
    assert find_endpoint({}) == "http://localhost:4318"
    assert make_settings({}) is None
