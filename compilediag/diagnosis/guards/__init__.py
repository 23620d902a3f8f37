"""Guards as text: printed reasons, guard expressions and sources, read and named.

Nothing here evaluates a guard, and nothing raises on text it cannot read.
"""
