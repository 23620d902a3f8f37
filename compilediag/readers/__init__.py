"""Readers of journals, traces and logs: bytes in, events out, every bad line counted."""
