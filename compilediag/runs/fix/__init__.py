"""Runs of a program with changes that may remove its findings, and the proofs of those that do."""
