"""Variables of the environment that change what is compiled: as lines for a shell, and put together
where several changes need the same one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def export_line(setting: str, value: str) -> str:
    """What to type before the program is started. Values hold no character that is special between
    double quotes (`offers.py`)."""
    return f"export {setting}={value}" if value.isalnum() else f'export {setting}="{value}"'


def joined(variables: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The variables with one value each: lists of torch are joined by commas, each item once; of
    overrides the frames come first; of others the last value counts."""
    values: dict[str, list[str]] = {}
    for setting, value in variables:
        values.setdefault(setting, []).append(value)
    return {setting: _joined(setting, of_setting) for setting, of_setting in values.items()}


def added(variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables as a program gets them whose environment has values of some already."""
    before = [(name, environ[name]) for name in variables if environ.get(name)]
    return joined([*before, *variables.items()])


def _joined(setting: str, values: list[str]) -> str:
    if values[-1].isalnum():  # a switch, no list
        return values[-1]
    frames = {value.partition(":")[0] for value in values}
    if setting.endswith("_CONFIGS") and len(frames) == 1:
        options = dict.fromkeys(value.partition(":")[2] for value in values)
        return f"{frames.pop()}:{','.join(options)}"
    return ",".join(dict.fromkeys(",".join(values).split(",")))
