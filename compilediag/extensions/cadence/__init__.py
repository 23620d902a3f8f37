"""The cadence probe: the cost of periodic work, such as evaluation, found by moving it."""
