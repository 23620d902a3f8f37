"""The command of small programs."""
