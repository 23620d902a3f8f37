"""The command of the probe."""
