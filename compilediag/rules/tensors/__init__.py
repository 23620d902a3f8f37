"""Tensors that changed otherwise than in the size of an argument."""
