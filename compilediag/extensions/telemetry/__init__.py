"""Metrics of a run in progress, exported to OpenTelemetry, Prometheus, experiments."""
