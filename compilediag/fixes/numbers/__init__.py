"""The numbers of compiled calls against those of eager, and where they first differ."""
