"""Many receipts: found in a folder, remembered in an index, put into figures and trends."""
