"""`train.py` under a wall clock that jumps by up to a day either way at every reading."""

import random
import runpy
import time
from pathlib import Path

jumps = random.Random(0)  # noqa: S311 - no secret
now = time.time
time.time = lambda: now() + jumps.uniform(-86400, 86400)
time.time_ns = lambda: int(time.time() * 1e9)
runpy.run_path(str(Path(__file__).with_name("train.py")))
