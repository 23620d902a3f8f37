"""Metrics and spans of a run in progress, exported to OpenTelemetry, Prometheus, experiments."""
