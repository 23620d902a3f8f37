"""Trials: runs with a change that the program itself does not have, and the outcomes they give."""
