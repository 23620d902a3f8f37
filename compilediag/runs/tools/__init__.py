"""Foreign command-line tools as child processes with limits."""
