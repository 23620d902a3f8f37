"""Receipts against receipts and baselines: keys, changes, diff and the gate."""
