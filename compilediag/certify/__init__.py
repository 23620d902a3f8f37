"""Certificates of changes: two states of a program compared, whoever made the second."""
