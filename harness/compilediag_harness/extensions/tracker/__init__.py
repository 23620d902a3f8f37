"""Runs of steps, as a program records them."""
