"""Attribution of guards, values and events to the program's own source lines."""
