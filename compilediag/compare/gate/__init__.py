"""The regression gate: a receipt judged against limits and a checked-in baseline."""
