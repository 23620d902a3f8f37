"""Graph breaks."""
