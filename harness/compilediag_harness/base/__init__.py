"""What every part of the inside stands on: session, journal, files, hooks after imports."""
