"""What a run cost, by the price table that a user gives."""
