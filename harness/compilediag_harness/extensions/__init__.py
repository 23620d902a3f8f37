"""The outer ring inside the user's process: what the core of the inside works without."""
