"""The receipt: the durable record of one run."""
