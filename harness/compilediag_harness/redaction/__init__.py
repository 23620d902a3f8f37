"""Secrets replaced in everything that is written down, in both halves."""
