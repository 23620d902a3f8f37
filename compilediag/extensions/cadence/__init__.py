"""The cadence probe: what each periodic group of work costs, found by moving it."""
