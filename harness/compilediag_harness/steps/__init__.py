"""Training steps of a program that marks none: found, timed and split into phases."""
