"""Trials: runs with a change that the program does not have, and the values sampled in them."""
