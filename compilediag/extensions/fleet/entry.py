"""One receipt of many in a few hundred bytes: configuration, code, machine and measures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

import msgspec

from compilediag.compare.keys import list_configuration_fields
from compilediag.extensions.fleet.measures import THROUGHPUTS, collect_values, list_checks
from compilediag.receipt.schema.receipt import Receipt

SOFTWARE = ("python", "torch", "triton", "cuda", "driver")
"""Versions of `environment` that may explain a change."""


class ConfigurationKey(NamedTuple):
    """The facts that must be equal for two receipts to be comparable; see `header.lane`."""

    name: str
    preset: str | None
    precision: str | None
    flags: tuple[tuple[str, str], ...]
    """Every other field of the configuration that is known, by its path, as JSON."""


class Entry(NamedTuple):
    """The facts of a receipt that statistics and trends need."""

    path: str
    """Below the folder, with "/" between its parts."""
    receipt_id: str
    created: str
    """UTC, "2026-11-20T14:45:00Z"; as it stands in the receipt where that is no time."""
    created_s: float | None
    """Seconds since the epoch; None where the receipt has no time."""
    configuration: ConfigurationKey
    machine: str
    software: tuple[tuple[str, str], ...]
    """Versions of `SOFTWARE` that are known."""
    commit: str | None
    branch: str | None
    dirty: bool | None
    message: str | None
    status: str
    verdict: str | None
    steps: int | None
    failed: tuple[str, ...] | None
    """Checks that failed; None where no check has an outcome."""
    values: dict[str, float]
    """Measures by name; what was not measured is not there."""


class BadFile(NamedTuple):
    """A file that is not a usable receipt, and why."""

    path: str
    kind: str
    """One of `KINDS`."""
    text: str


KINDS = {
    "newer": "written by a newer compilediag",
    "damaged": "damaged or half-written",
    "contradictory": "contradicting itself",
    "foreign": "other JSON",
    "unreadable": "cannot be read",
    "copy": "copied from a receipt that is counted",
}
"""Kinds of problems, in words."""


def make_entry(receipt: Receipt, path: str, created: str, created_s: float | None) -> Entry:
    """Make the entry of a receipt that was read from `path`."""
    provenance, environment = receipt.header.provenance, receipt.environment
    versions = ((name, getattr(environment, name)) for name in SOFTWARE)
    checks = list_checks(receipt)
    # The processors that did the work: timings of two machines are not compared.
    cores = f"{environment.cpu_count} CPUs" if environment.cpu_count else ""
    parts = [environment.cpu_model or "", cores]
    devices = Counter(_get_device_name(gpu) for gpu in environment.gpus or ())
    parts += [f"{count} x {name}" for name, count in devices.items()]
    return Entry(
        path=path,
        receipt_id=receipt.receipt_id,
        created=created,
        created_s=created_s,
        configuration=get_configuration(receipt),
        machine=", ".join(filter(None, parts)) or "unknown machine",
        software=tuple((name, value) for name, value in versions if value is not None),
        commit=provenance.git_commit,
        branch=provenance.git_branch,
        dirty=provenance.git_dirty,
        message=provenance.git_message_short,
        status=receipt.status,
        verdict=receipt.verdict,
        steps=receipt.steps.count if receipt.steps is not None else None,
        failed=tuple(name for name, good in checks.items() if not good) if checks else None,
        values=collect_values(receipt),
    )


def get_configuration(receipt: Receipt) -> ConfigurationKey:
    """Get the configuration of a receipt; a field that is null equals one that is not there."""
    fields = list_configuration_fields(receipt)
    name, preset, precision = (fields.pop(key) for key in ("name", "preset", "precision"))
    flags = {
        path: msgspec.json.encode(value).decode()
        for path, value in fields.items()
        if value is not None
    }
    return ConfigurationKey(name, preset, precision, tuple(sorted(flags.items())))


def _get_device_name(gpu: Any) -> str:
    if isinstance(gpu, Mapping):
        return str(cast(Mapping[str, Any], gpu).get("name") or "GPU")
    return str(gpu)


NO_PRESET = "(no preset)"


class ReceiptFilter(NamedTuple):
    """The receipts that are wanted; an empty filter is all of them."""

    configurations: tuple[str, ...] = ()
    """Names of configurations, or patterns such as "gpt-*"."""
    presets: tuple[str, ...] = ()
    since_s: float | None = None
    until_s: float | None = None

    def wants(self, entry: Entry) -> bool:
        """True if a receipt is one of them."""
        if self.configurations and not _fits(entry.configuration.name, self.configurations):
            return False
        if self.presets and not _fits(entry.configuration.preset or "", self.presets):
            return False
        if self.since_s is None and self.until_s is None:
            return True
        if entry.created_s is None:
            return False
        after = self.since_s is None or entry.created_s >= self.since_s
        return after and (self.until_s is None or entry.created_s < self.until_s)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def merge_by_preset(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Merge all configurations of one preset into one."""
    return tuple(
        entry._replace(
            configuration=ConfigurationKey(entry.configuration.preset or NO_PRESET, None, None, ())
        )
        for entry in entries
    )


def group_by_config(entries: Iterable[Entry]) -> dict[ConfigurationKey, list[Entry]]:
    """Group the receipts by configuration, in their order; configurations in that of names."""
    groups: dict[ConfigurationKey, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.configuration, []).append(entry)
    ordered = sorted(groups, key=lambda k: (k.name, k.preset or "", k.precision or "", k.flags))
    return {config: groups[config] for config in ordered}


def label_configs(configurations: Iterable[ConfigurationKey]) -> dict[ConfigurationKey, str]:
    """Label configurations: name, preset, precision, and differing flags where these are equal."""
    alike: dict[tuple[str | None, ...], list[ConfigurationKey]] = {}
    for config in configurations:
        alike.setdefault(config[:3], []).append(config)
    return {
        config: " ".join([*filter(None, common), *_list_distinct_flags(config, group)])
        for common, group in alike.items()
        for config in group
    }


def _list_distinct_flags(config: ConfigurationKey, group: Sequence[ConfigurationKey]) -> list[str]:
    """List the flags that not all of the group have, or not with this value."""
    flags = [dict(other.flags) for other in group]
    names = dict.fromkeys(name for other in flags for name in other)
    own = dict(config.flags)
    return [
        f"{name.rpartition('.')[2]}={own.get(name, 'unknown').strip(chr(34))}"
        for name in names
        if len({other.get(name) for other in flags}) > 1
    ]


def choose_throughput(values: Sequence[Mapping[str, float]]) -> str | None:
    """Choose the measure that is the throughput of these receipts: the best one that at least half
    of the receipts with any throughput have; None where none has any."""
    having = [measured for measured in values if any(name in measured for name in THROUGHPUTS)]
    for name in THROUGHPUTS:
        if having and 2 * sum(name in measured for measured in having) >= len(having):
            return name
    return None
