"""Programs before and after their advice was followed, one module a group of families."""
