"""Metadata of tensors, aliasing of inputs, None in place of a tensor (CD106, CD113, CD114)."""

from __future__ import annotations

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording

_TITLES = {
    "dtype": "tensor of another dtype",
    "stride": "tensor of another layout",
    "device": "tensor on another device",
    "rank": "tensor of another rank",
    "requires_grad": "tensor with another requires_grad",
    "inference": "inference tensor",
    "parameter": "parameter changed",
    "type": "tensor of another type",
    "subclass": "tensor subclass",
    "sparse": "sparse tensor",
    "conjugate": "conjugated tensor",
    "grad": "gradient present or missing",
    "identity": "another tensor at a static address",
}


def _metadata(group: Group) -> Wording:
    name = group.name
    fixes = {
        "dtype": f"convert {name} with .to(dtype) before the compiled call",
        "stride": f"call .contiguous() on {name} before the compiled call",
        "device": f"move {name} to one device before the compiled call",
        "rank": f"give {name} one rank: unsqueeze or view it before the compiled call",
        "requires_grad": f"call .detach() on {name} where no gradient is needed",
        "inference": f"call .clone() on {name} outside of torch.inference_mode()",
        "parameter": f"freeze, cast or replace {name} before the first compiled call",
        "sparse": f"convert {name} to one layout, such as .to_dense(), before the compiled call",
        "conjugate": f"call .resolve_conj() on {name} before the compiled call",
        "grad": f"zero {name} instead of setting it to None (zero_grad(set_to_none=False))",
    }
    fix = fixes.get(group.kind or "", f"pass {name} with one type and layout at every call")
    copies = group.kind in ("dtype", "stride", "inference")
    caveat = "a copy of the tensor per call" if copies else None
    return Wording(_TITLES.get(group.kind or "", "tensor metadata changed"), fix, caveat)


def _aliasing(group: Group) -> Wording:
    return Wording(
        "inputs alias differently",
        f"pass {group.variable or 'the inputs'} always as distinct tensors: .clone() one of them",
        "a copy of the tensor per call",
    )


def _optional(group: Group) -> Wording:
    return Wording(
        "argument is None in some calls",
        f"pass a neutral tensor (ones or zeros) for {group.name} instead of None, or warm up both",
        "warming up keeps two graphs",
    )


RULES: tuple[Rule, ...] = (
    RecompileRule("CD106", _metadata),
    RecompileRule("CD113", _aliasing),
    RecompileRule("CD114", _optional),
)
