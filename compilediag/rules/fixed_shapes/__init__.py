"""Padding to fixed sizes."""
