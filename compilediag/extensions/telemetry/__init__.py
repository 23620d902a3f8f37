"""Metrics of a run in progress, exported to OpenTelemetry and Prometheus."""
