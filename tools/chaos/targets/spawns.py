"""32 programs started at once, two of which import torch and recompile; half are killed at once."""

import subprocess
import sys

CODE = "import time; time.sleep(0.05)"
COMPILES = """
import torch
compiled = torch.compile(lambda x, word: x + len(word), backend="eager")
compiled(torch.ones(2), "a"), compiled(torch.ones(2), "bb")
"""

children = [
    subprocess.Popen([sys.executable, "-c", COMPILES if index < 2 else CODE]) for index in range(32)
]
for child in children[16:]:
    child.kill()
codes = [child.wait() for child in children]
print("codes", sorted(set(codes)), flush=True)
