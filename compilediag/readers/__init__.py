"""Readers: bytes in, events out, every bad line counted."""
