"""A small program that shows the cause of a finding, written from the receipt alone."""
