"""Comparisons of receipts with receipts and baselines: keys, changes, diff and the gate."""
