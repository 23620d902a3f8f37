"""What compiling, caches and guards cost."""
