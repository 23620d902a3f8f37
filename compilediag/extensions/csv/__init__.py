"""The compiles of a receipt as CSV."""
