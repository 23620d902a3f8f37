"""The cadence probe's arithmetic: which variants to run, and what each group costs.

Pure: `compilediag.extensions.cadence.runs.probe` runs the variants.
"""
