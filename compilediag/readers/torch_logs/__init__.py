"""TORCH_LOGS text: counted, and read as events."""
