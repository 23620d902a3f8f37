"""What steps do beside compiled code."""
