"""Fixed shapes: batches of any size run at a few sizes that were compiled before."""
