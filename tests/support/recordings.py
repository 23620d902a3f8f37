"""Recorded runs of the scenarios: what their processes wrote, and what torch itself counted.

`tests/data/journals/TORCH/SCENARIO-SIDE.json.gz` is one run under `compilediag run`: the files of
its directory, how it ended, and the counts that torch's own trace of that same run gives, by
`oracle.py`. `tools/record_journals.py` writes them. Nothing here imports torch or starts a process.
"""

import gzip
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

JOURNALS = Path(__file__).resolve().parents[1] / "data" / "journals"
HOME = "/src/compilediag"
"""The repository's folder, as the recordings name it."""


@dataclass(frozen=True)
class Recording:
    """One run of one program of a scenario."""

    name: str
    """Its scenario."""
    side: str
    torch: str
    returncode: int
    """Negative for a signal, as `subprocess` gives it."""
    wall_s: float
    pid: int
    """Of the process that was started."""
    variables: dict[str, str]
    """Those of its environment that a receipt may hold."""
    counted: dict[str, int]
    """torch's own counts in this run, with the names of `receipt.compile`."""
    files: dict[str, str]
    """The journals, the text log and whatever else lies beside them, by name."""

    @property
    def id(self) -> str:
        return f"{self.torch}-{self.name}-{self.side}"

    @property
    def comparable_counts(self) -> dict[str, int] | None:
        """torch's counts, but where it counts an export too, of which nothing is left to run, or
        nothing: `logging.disable` silences the trace of torch 2.7."""
        told = self.name != "export_only" and any(self.counted.values())
        return self.counted if told else None

    @property
    def program(self) -> str:
        """The path of the program, as the journals have it."""
        return f"{HOME}/scenarios/{self.name}/{self.side}.py"

    def unpack(self, folder: Path) -> None:
        """Writes the files of the run as they lay in its directory."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))


def list_paths(torch: str = "*") -> list[Path]:
    """The files of all recordings of a torch version, or of all."""
    return sorted(JOURNALS.glob(f"{torch}/*.json.gz"))


def read(path: Path) -> Recording:
    fields: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return Recording(**fields)


def write(recording: Recording, folder: Path) -> Path:
    """Its file, below the folder of its torch version; the same recording gives the same bytes."""
    path = folder / recording.torch / f"{recording.name}-{recording.side}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(recording), indent=0, sort_keys=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path
