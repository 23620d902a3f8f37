"""Runs a target that is told of far more often than users can ask for.

Arguments: URL TEXTFILE EVERY_S OUTPUT TARGET...
"""

import sys

from compilediag.extensions.telemetry.settings import TelemetrySettings
from compilediag.runs.supervised import RunOptions, run

url, textfile, every_s, output, *words = sys.argv[1:]
wishes = TelemetrySettings(
    otlp=url, prometheus_textfile=textfile, pushgateway=url, every_s=float(every_s)
)
outcome = run(words, RunOptions(output=output, live=None, telemetry=wishes))
receipt = outcome.receipt
counts = receipt.extensions["telemetry"] if receipt is not None else {}
taken = [counts.get(name, {}).get("pushes", 0) for name in ("otlp", "textfile", "pushgateway")]
if outcome.exit_code == 0 and min(taken) < 10:
    sys.exit(f"{taken} pushes: what was measured is not telling {outcome.notes}")
sys.exit(outcome.exit_code)
