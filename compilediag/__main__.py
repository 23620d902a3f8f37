"""`compilediag` and `python -m compilediag`: the command line."""

from __future__ import annotations

import sys

from compilediag.cli import main

if __name__ == "__main__":
    sys.exit(main())
