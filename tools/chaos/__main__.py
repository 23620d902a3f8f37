"""Disturbs runs at random moments, and checks what must hold whatever happens.

    python tools/chaos [--seed N] [--share S] [--jobs N] [CAMPAIGN ...]

SIGKILL of the target and of the supervisor, a disk that is full, a run folder that is removed, a
clock that jumps, 64 threads, storms of forks and spawns, eight ranks of which one is killed. After
each: the exit code is that of a run without us, the receipt is readable and counts no more than
happened, nothing is called clean that is not, no process and no temporary file is left. `make
chaos` calls it. The same seed gives the same disturbances; the machine decides what they hit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from campaigns import CAMPAIGNS, Campaign
from checks import problems


def main() -> int:
    """1 when something did not hold, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("campaigns", nargs="*", choices=[[], *CAMPAIGNS], metavar="CAMPAIGN")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the trials; at least one each")
    parser.add_argument("--jobs", type=int, default=2, help="trials at the same time")
    asked = parser.parse_args()
    failed = 0
    for name in asked.campaigns or CAMPAIGNS:
        failed += _run(name, CAMPAIGNS[name], asked)
    return int(failed > 0)


def _run(name: str, campaign: Campaign, asked: argparse.Namespace) -> int:
    """The number of trials after which something did not hold."""
    trials = max(1, round(campaign.trials * asked.share))
    begun = time.monotonic()

    def one(number: int) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            trial = campaign.run(Path(folder), f"{asked.seed}-{name}-{number}")
            return problems(trial)

    with ThreadPoolExecutor(1 if campaign.alone else asked.jobs) as pool:
        found = list(pool.map(one, range(trials)))
    bad = [problem for problems in found for problem in problems]
    for problem in bad:
        print(problem, file=sys.stderr)
    failed = sum(map(bool, found))
    print(
        f"{name:16} {trials:4} trials, {failed} failed, {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    return failed


if __name__ == "__main__":
    sys.exit(main())
