"""Figures derived from a Timeline: goodput, invocations, padding, step statistics."""
