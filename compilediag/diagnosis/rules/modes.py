"""What surrounds a call: globals, global modes of torch, the backend (CD109, CD111, CD112)."""

from __future__ import annotations

from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import CauseGroup, RecompileRule, Wording, Wordings

_SET_ONCE = (
    "matmul_precision", "reduced_precision", "num_threads", "deterministic", "default_dtype",
)  # fmt: skip


_GLOBAL: Wordings = {
    "environment": Wording(
        "environment value changed", "read {name} once at import, outside of the region"
    ),
    "number": Wording(
        "global variable",
        "pass {name} as a tensor argument, or make it a 0-dim tensor that is changed in place",
    ),
    None: Wording(
        "global variable",
        "read {name} outside of the compiled function and pass what follows from it",
        "one graph per value that is warmed up",
    ),
}


def _mode_kind(group: CauseGroup) -> str | None:
    kind = group.kind or ""
    if "grad_mode" in kind:
        return "grad_mode"
    if kind.startswith("autocast"):
        return "autocast"
    return "set_once" if any(name in kind for name in _SET_ONCE) else kind


_DEFAULT_DEVICE = Wording(
    "default device or function mode changed",
    "put `with torch.device(...)` around the creation of tensors only, not around the call",
)
_MODE: Wordings = {
    "train_eval": Wording(
        "train and eval alternate",
        "warm up both modes before the timed steps",
        "two graphs, bounded",
    ),
    "grad_mode": Wording(
        "grad mode changed",
        "warm up with and without gradients before the timed steps",
        "two graphs, bounded",
    ),
    "autocast": Wording(
        "autocast changed",
        "enter autocast at one place for every call, best inside the compiled function",
    ),
    "default_device": _DEFAULT_DEVICE,
    "torch_function_mode": _DEFAULT_DEVICE,
    "set_once": Wording(
        "global setting changed after the first compile",
        "set {setting} once, before the first compiled call",
    ),
    None: Wording(
        "global state of torch changed",
        "keep the state the same at every compiled call, or warm up each combination",
        "one graph per combination",
    ),
}

_BACKEND = Wording(
    "same code, another backend object",
    "create the backend and its options once, at module level, and compile {function} once",
    "a functools.partial made per call does not help",
)

RULES: tuple[Rule, ...] = (
    RecompileRule("CD109", _GLOBAL),
    RecompileRule("CD111", _MODE, _mode_kind),
    RecompileRule("CD112", {None: _BACKEND}),
)
