"""What surrounds a call: globals, global modes of torch, the backend (CD109, CD111, CD112)."""

from __future__ import annotations

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.attributes import is_number
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording

_SET_ONCE = (
    "matmul_precision", "reduced_precision", "num_threads", "deterministic", "default_dtype",
)  # fmt: skip


def _global(group: Group) -> Wording:
    if group.kind == "environment":
        return Wording(
            "environment value changed", f"read {group.name} once at import, outside of the region"
        )
    if is_number(group.first):
        return Wording(
            "global variable",
            f"pass {group.name} as a tensor argument, or make it a 0-dim tensor that is changed "
            "in place",
        )
    return Wording(
        "global variable",
        f"read {group.name} outside of the compiled function and pass what follows from it",
        "one graph per value that is warmed up",
    )


def _mode(group: Group) -> Wording:
    kind = group.kind or ""
    if kind == "train_eval":
        return Wording(
            "train and eval alternate",
            "warm up both modes before the timed steps",
            "two graphs, bounded",
        )
    if "grad_mode" in kind:
        return Wording(
            "grad mode changed",
            "warm up with and without gradients before the timed steps",
            "two graphs, bounded",
        )
    if kind.startswith("autocast"):
        return Wording(
            "autocast changed",
            "enter autocast at one place for every call, best inside the compiled function",
        )
    if kind in ("default_device", "torch_function_mode"):
        return Wording(
            "default device or function mode changed",
            "put `with torch.device(...)` around the creation of tensors only, not around the call",
        )
    if any(name in kind for name in _SET_ONCE):
        return Wording(
            "global setting changed after the first compile",
            f"set {kind.replace('_', ' ')} once, before the first compiled call",
        )
    return Wording(
        "global state of torch changed",
        "keep the state the same at every compiled call, or warm up each combination",
        "one graph per combination",
    )


def _backend(group: Group) -> Wording:
    return Wording(
        "same code, another backend object",
        f"create the backend and its options once, at module level, and compile {group.function} "
        "once",
        "a functools.partial made per call does not help",
    )


RULES: tuple[Rule, ...] = (
    RecompileRule("CD109", _global),
    RecompileRule("CD111", _mode),
    RecompileRule("CD112", _backend),
)
