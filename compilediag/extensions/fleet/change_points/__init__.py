"""Where a series of numbers takes a lasting step: `noisy` for timings, `counts` for counts."""
