"""Records of runs from anywhere made into receipts: traces, text logs, run directories, and the
output of trainers. The way is that of a live run."""
