"""Collectors: each watches one thing torch does and emits events about it."""
