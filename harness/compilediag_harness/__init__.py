"""The half of compilediag that runs inside the user's process and only writes events.

PYTEST_DONT_REWRITE: pytest rewrites the assertions of packages that hold a plugin, and would warn
about this one, which `compilediag run` imports before pytest starts.
"""
