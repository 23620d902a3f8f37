"""From false guards to causes: what had to be true, without consequences, nearest entry first."""
