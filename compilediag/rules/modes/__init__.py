"""Modes and states of torch."""
