"""The foundation of the harness: session, journal, files, hooks after imports."""
