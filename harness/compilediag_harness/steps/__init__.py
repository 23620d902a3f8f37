"""Steps of a program that declares none: found, timed and split into phases."""
