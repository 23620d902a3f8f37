"""The output of trainers: steps, throughput and how the run ended."""
