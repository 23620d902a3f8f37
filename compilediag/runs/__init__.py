"""The only shell: obtains events, calls the pipeline, writes what comes out of it."""
