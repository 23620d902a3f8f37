"""Settings of torch that need no edit of the program, as lines for a shell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CandidateRecord, FindingRecord


def export_line(candidate: CandidateRecord) -> str:
    """What to type before the program is started."""
    return _export(candidate.setting, candidate.value)


def joined_exports(findings: Iterable[FindingRecord]) -> list[str]:
    """The best settings of all findings together, where several need the same variable: the second
    `export` of it would replace the first."""
    values: dict[str, list[str]] = {}
    for finding in findings:
        for candidate in finding.fix.candidates[:1]:
            values.setdefault(candidate.setting, []).append(candidate.value)
    if all(len(set(of_setting)) == 1 for of_setting in values.values()):
        return []
    return [_export(setting, value) for setting, value in _joined(values).items()]


def _joined(values: Mapping[str, list[str]]) -> dict[str, str]:
    """Lists of torch are joined by commas, each item once; of overrides the frames come first."""
    joined: dict[str, str] = {}
    for setting, of_setting in values.items():
        frames = {value.partition(":")[0] for value in of_setting}
        if setting.endswith("_CONFIGS") and len(frames) == 1:
            options = dict.fromkeys(value.partition(":")[2] for value in of_setting)
            joined[setting] = f"{frames.pop()}:{','.join(options)}"
        else:
            joined[setting] = ",".join(dict.fromkeys(",".join(of_setting).split(",")))
    return joined


def _export(setting: str, value: str) -> str:
    """Values hold no character that is special between double quotes (`diagnosis/levers.py`)."""
    return f"export {setting}={value}" if value.isalnum() else f'export {setting}="{value}"'
