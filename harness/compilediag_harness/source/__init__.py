"""Reading the user's source text: which lines are theirs, what they write and loop over."""
