"""What the record itself is worth."""
