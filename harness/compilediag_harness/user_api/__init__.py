"""Public API that programs import: spans and cadence, with what extensions share for theirs."""
