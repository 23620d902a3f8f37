"""torch's private API as this package uses it: looked up by name, and allowed to be missing."""
