"""Redaction of secrets in all that is written, by the command line and in the user's process."""
