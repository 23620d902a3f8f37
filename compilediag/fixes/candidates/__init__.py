"""What may be tried to remove a finding."""
