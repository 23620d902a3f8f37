"""What a run tells monitoring while it goes on, from outside of it: OpenTelemetry, Prometheus."""
