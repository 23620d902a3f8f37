"""The line of the program that a value comes from."""
