"""Ranks of one run compared: a small summary of each, and where they do not do the same."""
