"""The outer ring: capabilities that the core works without, each a package of its own."""
