"""Causes of recompiles, from false guards: consequences dropped, nearest cache entry first."""
