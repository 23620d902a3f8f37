"""Guards that are armed, variants, and the limit of recompiles."""
