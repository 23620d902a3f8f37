"""Whether compiled calls give the numbers that eager gives, and where they first do not."""
