"""A probe as text and as a section of the HTML report."""
