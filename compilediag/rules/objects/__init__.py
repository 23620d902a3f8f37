"""Containers, objects, optional arguments and hooks that changed."""
