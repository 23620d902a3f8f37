"""Runs of programs, live and recorded: obtains their events, diagnoses them, writes receipts."""
