"""Runs of a program with changes that it does not have."""
