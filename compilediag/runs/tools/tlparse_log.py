"""A TORCH_TRACE log copied so that tlparse can be given it.

tlparse ends at one byte that is no UTF-8, takes names in the log for paths, and puts some texts
into its pages as they are. The copy therefore holds records that are understood, with known keys
only, harmless names, no markup in metadata, and no secrets that are recognised.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple, cast

from compilediag.readers.lenient_json import map_json, parse
from compilediag.receipt.redact import Redactor

LARGEST_LOG_BYTES = 256 << 20
"""tlparse needs three times the log in memory, and writes twice the log."""
MOST_PAYLOADS = 50_000
"""Each becomes a file of the report."""
LONGEST_LINE_BYTES = 8 << 20
LONGEST_PAYLOAD_BYTES = 32 << 20

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
"""What torch writes and a report shows. `link` and `dump_file` are not among them: they name
addresses and files."""
NUMBERS = ("rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
LARGEST_NUMBER = 10_000_000

_HEAD = re.compile(
    rb"(?P<when>[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d{1,9}) (?P<pid>\d{1,20}) "
    rb"(?P<path>[^\"\n]{1,400}?):(?P<line>\d{1,9})\] (?=\{)"
)
_HARMLESS = re.compile(r"[^A-Za-z0-9_-]+")
_CONTROLS = dict.fromkeys((*range(9), *range(11, 32), 127), " ")
_MARKUP = _CONTROLS | {9: " ", 10: " ", 60: "‹", 62: "›", 38: "+", 34: "'"}
"""`<`, `>`, `&` and quotation marks become signs that are no markup."""


class TooLarge(Exception):
    """The log is larger than a report can be made of; the message is the reason."""


@dataclass(slots=True)
class Copied:
    """What a copy holds, and what it does not."""

    records: int = 0
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    """Records by reason: "no_record", "unknown_event", "bad_number", "too_long"."""

    def leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


class _Record(NamedTuple):
    head: re.Match[bytes]
    metadata: bytes
    payload: list[bytes]


def copy_log(pieces: Iterable[bytes], target: BinaryIO, known: Sequence[str] = ()) -> Copied:
    """Writes the copy.

    Args:
        pieces: the bytes of the log.
        target: where the copy goes.
        known: values that are secret, replaced wherever they are.

    Raises:
        TooLarge: no report can be made of it.
    """
    copied = Copied()
    payloads = 0
    for record in _records(_lines(pieces), copied):
        try:
            written = _cleaned(record, copied, known)
        except RecursionError:
            copied.leave_out("no_record")
            continue
        if written is None:
            continue
        payloads += bool(record.payload)
        if payloads > MOST_PAYLOADS:
            raise TooLarge(f"it holds more than {MOST_PAYLOADS:,} artifacts")
        target.write(written)
        copied.records += 1
    return copied


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends; of a line over the limit only the beginning comes."""
    rest, total = b"", 0
    for piece in pieces:
        total += len(piece)
        if total > LARGEST_LOG_BYTES:
            raise TooLarge(f"it is larger than {LARGEST_LOG_BYTES >> 20} MiB")
        *whole, last = piece.split(b"\n")
        for line in whole:
            yield rest + line
            rest = b""
        if len(rest) <= LONGEST_LINE_BYTES:
            rest += last
    if rest:
        yield rest


def _records(lines: Iterable[bytes], copied: Copied) -> Iterator[_Record]:
    current: _Record | None = None
    size = 0
    for line in lines:
        if line.startswith(b"\t"):
            size += len(line)
            if current is not None and size <= LONGEST_PAYLOAD_BYTES:
                current.payload.append(line[1:])
            elif current is not None:
                copied.leave_out("too_long")
                current = None
            continue
        if current is not None:
            yield current
        current, size = None, 0
        head = _HEAD.match(line)
        if head is not None and len(line) <= LONGEST_LINE_BYTES:
            current = _Record(head, line[head.end() :], [])
        elif line.strip():
            copied.leave_out("no_record" if head is None else "too_long")
    if current is not None:
        yield current


def _cleaned(record: _Record, copied: Copied, known: Sequence[str]) -> bytes | None:
    raw = parse(record.metadata)
    fields = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    event = next(iter(fields), None)
    if event not in EVENTS:
        copied.leave_out("no_record" if event is None else "unknown_event")
        return None
    kept: dict[str, Any] = {event: _named(_without_markup(fields[event]))}
    for name in NUMBERS:
        number = fields.get(name)
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int):
            copied.leave_out("bad_number")
            return None
        if not 0 <= number <= LARGEST_NUMBER:
            copied.leave_out("bad_number")
            return None
        kept[name] = number
    if isinstance(fields.get("stack"), list):
        kept["stack"] = _without_markup(fields["stack"])
    redactor = Redactor(known)
    payload = b""
    if record.payload or "has_payload" in fields:
        payload = _payload(record.payload, redactor)
        # As torch does: the digest of the text, which was changed.
        kept["has_payload"] = hashlib.md5(payload, usedforsecurity=False).hexdigest()
    metadata = redactor.text(json.dumps(kept, ensure_ascii=True), is_name=True)
    path = _HARMLESS.sub("_", record.head["path"].decode("ascii", "replace").replace(".py", ""))
    head = b"%s %s %s.py:%s] " % (
        record.head["when"], record.head["pid"], path.encode(), record.head["line"],
    )  # fmt: skip
    lines = [head + metadata.encode("ascii", "replace")]
    if "has_payload" in kept:
        lines += [b"\t" + line for line in payload.split(b"\n")]
    return b"\n".join(lines) + b"\n"


def _payload(lines: Sequence[bytes], redactor: Redactor) -> bytes:
    text = b"\n".join(lines).decode("utf-8", "replace").translate(_CONTROLS)
    return redactor.text(text, is_name=True).encode("utf-8", "replace")


def _without_markup(value: Any) -> Any:
    """Values without markup and control characters, to any depth."""
    return map_json(
        value,
        lambda leaf: leaf.translate(_MARKUP) if isinstance(leaf, str) else leaf,
        lambda name: name.translate(_MARKUP),
    )


def _named(event: Any) -> Any:
    """Names of what becomes files, as plain words."""
    if not isinstance(event, dict):
        return event
    fields = dict(cast("dict[str, Any]", event))
    for key in ("name", "filename"):
        if isinstance(fields.get(key), str):
            stem = fields[key].rpartition("/")[2].removesuffix(".py")
            word = _HARMLESS.sub("_", stem)[:100] or "unnamed"
            fields[key] = f"{word}.py" if fields[key].endswith(".py") else word
    return fields
