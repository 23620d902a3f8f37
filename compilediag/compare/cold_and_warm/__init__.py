"""A program started twice with the same caches, which were empty before."""
