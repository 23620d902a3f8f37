"""Metadata of tensors, aliasing of inputs, None in place of a tensor (CD106, CD113, CD114)."""

from __future__ import annotations

from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording, Wordings

_COPY = "a copy of the tensor per call"
_OTHER = Wording("tensor metadata changed", "pass {name} with one type and layout at every call")

_METADATA: Wordings = {
    "dtype": Wording(
        "tensor of another dtype",
        "convert {name} with .to(dtype) before the compiled call",
        _COPY,
    ),
    "stride": Wording(
        "tensor of another layout", "call .contiguous() on {name} before the compiled call", _COPY
    ),
    "device": Wording(
        "tensor on another device", "move {name} to one device before the compiled call"
    ),
    "rank": Wording(
        "tensor of another rank",
        "give {name} one rank: unsqueeze or view it before the compiled call",
    ),
    "requires_grad": Wording(
        "tensor with another requires_grad", "call .detach() on {name} where no gradient is needed"
    ),
    "inference": Wording(
        "inference tensor", "call .clone() on {name} outside of torch.inference_mode()", _COPY
    ),
    "parameter": Wording(
        "parameter changed", "freeze, cast or replace {name} before the first compiled call"
    ),
    "sparse": Wording(
        "sparse tensor",
        "convert {name} to one layout, such as .to_dense(), before the compiled call",
    ),
    "conjugate": Wording(
        "conjugated tensor", "call .resolve_conj() on {name} before the compiled call"
    ),
    "grad": Wording(
        "gradient present or missing",
        "zero {name} instead of setting it to None (zero_grad(set_to_none=False))",
    ),
    "type": _OTHER._replace(title="tensor of another type"),
    "subclass": _OTHER._replace(title="tensor subclass"),
    "identity": _OTHER._replace(title="another tensor at a static address"),
    None: _OTHER,
}

_ALIASING = Wording(
    "inputs alias differently",
    "pass {inputs} always as distinct tensors: .clone() one of them",
    _COPY,
)
_OPTIONAL = Wording(
    "argument is None in some calls",
    "pass a neutral tensor (ones or zeros) for {name} instead of None, or warm up both",
    "warming up keeps two graphs",
)

RULES: tuple[Rule, ...] = (
    RecompileRule("CD106", _METADATA),
    RecompileRule("CD113", {None: _ALIASING}),
    RecompileRule("CD114", {None: _OPTIONAL}),
)
