"""Trials: runs with a change that the program itself does not have, and the values sampled in
them."""
