"""Runs of steps and ablations, as a program records them."""
