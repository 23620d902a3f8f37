"""The traces of a run, and cleaned copies of TORCH_TRACE logs that are safe to pass to tlparse.

tlparse ends at one byte that is no UTF-8, uses names in the log as paths, and puts some texts into
its pages unescaped. The copy therefore holds only well-formed records, with known keys, harmless
names, no markup in metadata, and no secrets that are recognised.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple, cast

from compilediag.readers.lines import map_json, parse_object, split_lines
from compilediag.readers.storage import open_stream
from compilediag.runs.run_directory import ARTIFACTS, TRACES
from compilediag_harness.redaction.redactor import Redactor

MAX_LOG_BYTES = 256 << 20
"""tlparse needs three times the log in memory, and writes twice the log."""
MAX_PAYLOADS = 50_000
"""Each becomes a file of the report."""
MAX_LINE_BYTES = 8 << 20
MAX_PAYLOAD_BYTES = 32 << 20

EVENTS = frozenset(
    (
        "str", "dynamo_start", "compilation_metrics", "bwd_compilation_metrics", "artifact",
        "dynamo_cpp_guards_str", "dynamo_guards", "guard_added", "guard_added_fast",
        "create_symbol", "create_unbacked_symbol", "symbolic_shape_specialization",
        "propagate_real_tensors_provenance", "describe_storage", "describe_tensor",
        "describe_source", "chromium_event", "dynamo_output_graph", "aot_joint_graph",
        "aot_forward_graph", "aot_backward_graph", "aot_inference_graph",
        "aot_forward_graph_fw_metadata", "inductor_pre_grad_graph", "inductor_post_grad_graph",
        "inductor_output_code", "optimize_ddp_split_graph", "optimize_ddp_split_child",
        "compiled_autograd_graph", "graph_dump", "missing_fake_kernel", "mismatched_fake_kernel",
        "expression_created",
    )
)  # fmt: skip
"""Records that a report shows. `link` and `dump_file` are not among them: they hold addresses and
paths."""
ID_FIELDS = ("rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
MAX_ID = 10_000_000

_HEAD = re.compile(
    rb"(?P<when>[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d{1,9}) (?P<pid>\d{1,20}) "
    rb"(?P<path>[^\"\n]{1,400}?):(?P<line>\d{1,9})\] (?=\{)"
)
_HARMLESS = re.compile(r"[^A-Za-z0-9_-]+")
_CONTROLS = dict.fromkeys((*range(9), *range(11, 32), 127), " ")
_MARKUP = _CONTROLS | {9: " ", 10: " ", 60: "‹", 62: "›", 38: "+", 34: "'"}
"""`<`, `>`, `&` and quotation marks become signs that are no markup."""


class TooLarge(Exception):
    """The log is too large for a report; the message is the reason."""


@dataclass(slots=True)
class Copied:
    """Counts of a copy."""

    records: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Records by reason: "no_record", "unknown_event", "bad_number", "too_long"."""


class _Record(NamedTuple):
    head: re.Match[bytes]
    metadata: bytes
    payload: list[bytes]


def copy_log(pieces: Iterable[bytes], target: BinaryIO, known: Sequence[str] = ()) -> Copied:
    """Writes a copy of the bytes of a log, without the secret values that are `known`.

    Raises:
        TooLarge: no report can be made of it.
    """
    copied, redactor, payloads = Copied(), Redactor(known), 0
    for record in _records(pieces, copied):
        try:
            cleaned = _cleaned(record, copied, redactor)
        except RecursionError:
            copied.left_out["no_record"] += 1
            continue
        if cleaned is None:
            continue
        payloads += bool(record.payload)
        if payloads > MAX_PAYLOADS:
            raise TooLarge(f"it holds more than {MAX_PAYLOADS:,} artifacts")
        target.write(cleaned)
        copied.records += 1
    return copied


def _limited(pieces: Iterable[bytes]) -> Iterator[bytes]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_LOG_BYTES:
            raise TooLarge(f"it is larger than {MAX_LOG_BYTES >> 20} MiB")
        yield piece


def _records(pieces: Iterable[bytes], copied: Copied) -> Iterator[_Record]:
    current: _Record | None = None
    size = 0
    for line, *_ in split_lines(_limited(pieces), MAX_LINE_BYTES + 1):
        if line.startswith(b"\t"):
            size += len(line)
            if current is not None and size <= MAX_PAYLOAD_BYTES:
                current.payload.append(line[1:])
            elif current is not None:
                copied.left_out["too_long"] += 1
                current = None
            continue
        if current is not None:
            yield current
        current, size = None, 0
        head = _HEAD.match(line)
        if head is not None and len(line) <= MAX_LINE_BYTES:
            current = _Record(head, line[head.end() :], [])
        elif line.strip():
            copied.left_out["no_record" if head is None else "too_long"] += 1
    if current is not None:
        yield current


def _cleaned(record: _Record, copied: Copied, redactor: Redactor) -> bytes | None:
    fields = parse_object(record.metadata) or {}
    event = next(iter(fields), None)
    if event not in EVENTS:
        copied.left_out["no_record" if event is None else "unknown_event"] += 1
        return None
    ids = {name: fields[name] for name in ID_FIELDS if fields.get(name) is not None}
    # A bool is an int, and no id.
    if any(type(value) is not int or not 0 <= value <= MAX_ID for value in ids.values()):
        copied.left_out["bad_number"] += 1
        return None
    kept: dict[str, Any] = {event: _without_markup(fields[event]), **ids}
    # Names, which become file names, are plain words.
    about = cast("dict[str, Any]", kept[event]) if isinstance(kept[event], dict) else {}
    for key in ("name", "filename"):
        if isinstance(text := about.get(key), str):
            stem = text.rpartition("/")[2].removesuffix(".py")
            word = _HARMLESS.sub("_", stem)[:100] or "unnamed"
            about[key] = f"{word}.py" if text.endswith(".py") else word
    if isinstance(fields.get("stack"), list):
        kept["stack"] = _without_markup(fields["stack"])
    lines: list[bytes] = []
    if record.payload or "has_payload" in fields:
        text = b"\n".join(record.payload).decode("utf-8", "replace").translate(_CONTROLS)
        payload = redactor.text(text).encode("utf-8", "replace")
        # As torch does: the digest of the text, which was changed.
        kept["has_payload"] = hashlib.md5(payload, usedforsecurity=False).hexdigest()
        lines = [b"\t" + line for line in payload.split(b"\n")]
    metadata = redactor.text(json.dumps(kept, ensure_ascii=True))
    head = record.head
    path = _HARMLESS.sub("_", head["path"].decode("ascii", "replace").replace(".py", ""))
    prefix = b"%s %s %s.py:%s] " % (head["when"], head["pid"], path.encode(), head["line"])
    return b"\n".join([prefix + metadata.encode("ascii", "replace"), *lines, b""])


def _without_markup(value: Any) -> Any:
    """Values without markup and control characters, to any depth."""
    return map_json(
        value,
        lambda leaf: leaf.translate(_MARKUP) if isinstance(leaf, str) else leaf,
        lambda name: name.translate(_MARKUP),
    )


def traces_in(run_dir: str) -> list[str]:
    """The traces that a run kept."""
    try:
        with os.scandir(os.path.join(run_dir, ARTIFACTS, TRACES)) as entries:
            return sorted(item.path for item in entries if item.is_file(follow_symlinks=False))
    except OSError:
        return []


def clean_traces(run_dir: str, attached: int, known: Sequence[str]) -> tuple[str, ...]:
    """Takes the secrets out of traces that a process wrote which compilediag was not attached to;
    an attached one writes its trace without them.

    `attached` is the count of processes that do so themselves, each of which writes one trace at
    most; `known` are secret values. Returns sentences for the user.
    """
    traces = traces_in(run_dir)
    if len(traces) <= attached:
        return ()
    notes: list[str] = []
    for path in traces:
        cleaned = f"{path}.cleaned"
        try:
            with open(cleaned, "xb") as target:
                copy_log(open_stream(path).chunks(), target, known)
            os.replace(cleaned, path)
        except (OSError, TooLarge) as error:
            for name in (path, cleaned):
                with contextlib.suppress(OSError):
                    os.unlink(name)
            notes.append(
                f"{os.path.basename(path)} was removed: compilediag was not attached to the "
                f"process that wrote it, and no copy without secrets could be made: {error}"
            )
    return tuple(notes)
