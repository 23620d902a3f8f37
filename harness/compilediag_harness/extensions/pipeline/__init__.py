"""Producer-consumer loops, as a program declares them."""
