"""The sections of a receipt, one module for each question it answers."""
