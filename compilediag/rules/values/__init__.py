"""Python values that changed."""
