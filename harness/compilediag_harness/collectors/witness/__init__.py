"""Who changed a guarded value: seen by following the program's own lines, never guessed."""
