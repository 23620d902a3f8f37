"""Reader of TORCH_TRACE files: bytes to records, records to events."""
