"""What users import: spans, cadence, pipeline, tracker, drive."""
