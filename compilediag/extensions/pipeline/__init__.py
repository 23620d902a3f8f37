"""The two sides of a producer-consumer loop, and which of them is the bottleneck."""
