"""The runs of a probe."""
