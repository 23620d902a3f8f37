"""Commands: one file a subcommand."""
