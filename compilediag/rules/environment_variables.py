"""Variables of the environment that change what is compiled: as lines for a shell, and put together
where several changes need the same one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def format_export(setting: str, value: str) -> str:
    """Format what to type before the program is started. Values hold no character that is special
    between double quotes (`is_listable` and `PARAMETER` take none), so nothing is escaped."""
    return f"export {setting}={value}" if value.isalnum() else f'export {setting}="{value}"'


def join_values(variables: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Join the values of each variable: lists of torch by commas, each entry once; of overrides the
    frames come first; of others the last value counts."""
    values: dict[str, list[str]] = {}
    for setting, value in variables:
        values.setdefault(setting, []).append(value)
    return {setting: _join_list(setting, of_setting) for setting, of_setting in values.items()}


def merge_environment(variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Merge the variables with the values that the environment of a program has already."""
    before = [(name, environ[name]) for name in variables if environ.get(name)]
    return join_values([*before, *variables.items()])


def _join_list(setting: str, values: list[str]) -> str:
    if values[-1].isalnum():  # a switch, no list
        return values[-1]
    frames = {value.partition(":")[0] for value in values}
    if setting.endswith("_CONFIGS") and len(frames) == 1:
        options = dict.fromkeys(value.partition(":")[2] for value in values)
        return f"{frames.pop()}:{','.join(options)}"
    return ",".join(dict.fromkeys(",".join(values).split(",")))
