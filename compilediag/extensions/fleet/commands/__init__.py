"""Commands of many receipts: one file a subcommand."""
