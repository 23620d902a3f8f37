"""The half of compilediag that runs inside the user's process and only writes events."""
