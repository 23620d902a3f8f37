"""The cadence probe's arithmetic: which variants to run, and what each group costs.

Pure: `compilediag.runs.supervised.probe` runs the variants.
"""
