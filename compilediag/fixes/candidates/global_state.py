"""The global state of torch: set once before the first call, or one mode for every call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from compilediag.fixes.candidates.case import Case
from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import Edit
from compilediag.receipt.schema.compiles import CompileEvent

_MATMUL = "torch.backends.cuda.matmul"
_SETTERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "matmul_precision": ("torch.set_float32_matmul_precision", f"{_MATMUL}.allow_tf32"),
        "reduced_precision": (
            f"{_MATMUL}.allow_fp16_reduced_precision_reduction",
            f"{_MATMUL}.allow_bf16_reduced_precision_reduction",
        ),
        "deterministic": ("torch.use_deterministic_algorithms",),
        "num_threads": ("torch.set_num_threads",),
        "default_dtype": ("torch.set_default_dtype",),
    }
)
"""What sets each part of the state for the whole program."""

_EARLIER = "it applies from the start, also to everything before the first call"
_NO_GRAD, _INFERENCE = "torch.no_grad", "torch.inference_mode"
_STRICTER = "tensors made there cannot be used where gradients are recorded"
_LOOSER = "every operation there costs a little more"


def global_state_candidates(case: Case) -> Iterator[Change]:
    """Edits of the file with the call that was compiled again."""
    if case.finding.rule != "CD111":
        return
    if case.kind == "inference_mode":
        yield from _one_mode(case)
        return
    entered, setters = case.finding.entered_at, _SETTERS.get(case.kind)
    if entered is None or setters is None or not case.is_own(entered.file):
        return
    yield Change(
        "source",
        f"{entered.file}: the statement that sets {' or '.join(setters)}, "
        "once more below the imports",
        _EARLIER,
        edits=(Edit(entered.file, entered.line, "set_first", setters),),
    )


def _one_mode(case: Case) -> Iterator[Change]:
    again = {event.compile_id for event in case.compiles}
    late = [event for event in case.compiles_of_frames if event.compile_id in again]
    early = [event for event in case.compiles_of_frames if event.compile_id not in again]
    first = case.values[0] if case.values else ("", "")
    inference, plain = (early, late) if first == ("on", "off") else (late, early)
    yield from _with(case, plain, _NO_GRAD, _INFERENCE, _STRICTER)
    yield from _with(case, inference, _INFERENCE, _NO_GRAD, _LOOSER)


def _with(
    case: Case, events: Iterable[CompileEvent], old: str, new: str, risk: str
) -> Iterator[Change]:
    calls = dict.fromkeys(
        (event.entered_at.file, event.entered_at.line) if event.entered_at is not None else None
        for event in events
    )
    places = [call for call in calls if call is not None and case.is_own(call[0])]
    if not places or len(places) != len(calls):
        return
    shown = " and ".join(f"{file}:{line}" for file, line in places)
    yield Change(
        "source",
        f"{shown}: with {new}() instead of {old}() around the call",
        risk,
        edits=tuple(Edit(file, line, "mode", (old, new)) for file, line in places),
    )
