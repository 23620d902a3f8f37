"""Sizes that changed, conditions on them, and promises about them."""
