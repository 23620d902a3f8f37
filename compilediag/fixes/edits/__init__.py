"""Edits of a program's source text, by libcst: comments and layout stay as they are."""
