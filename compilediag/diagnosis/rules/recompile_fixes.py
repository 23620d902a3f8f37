"""What happened and what to change, for each family of recompiles (docs/rules/CD1xx.md).

In braces: {name}, {function} and other fields of `_filled`. A wording stands under the kind of its
causes; "bool" and "number" are guards that expected such a value, None is every other kind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.branching import decides_by
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording
from compilediag.diagnosis.rules.sizes import with_sizes, wording_of_sizes
from compilediag.timeline.ownership import ownership_of

_DISABLE_COST = (
    "costs a kernel each step; disabling the function instead costs a graph break per call site, "
    "and the loop that calls it runs eager"
)
_COPY = "a copy of the tensor per call"
_SET_ONCE = (
    "matmul_precision", "reduced_precision", "num_threads", "deterministic", "default_dtype",
)  # fmt: skip

_GROWN = Wording(
    "lazily grown buffer",
    "allocate {name} at its largest size in __init__ and slice it",
    "when the input length varies too, one recompile for that size remains (CD105)",
)
_ATTRIBUTE_CONTAINER = Wording(
    "attribute container",
    "return what {function} puts into {name} and collect it outside, or write it into a "
    "preallocated tensor with a 0-dim counter",
)
_INSTANCE = Wording(
    "instances share code and differ",
    "compile the container of the instances once",
    "raise recompile_limit only as a last resort: each instance costs a compile",
)
_METADATA = Wording("tensor metadata changed", "pass {name} with one type and layout at every call")
_OTHER_KEYS = Wording(
    "container argument with other keys",
    "pass {name} with the same keys in the same order at every call: a neutral value for a key "
    "that has none (a tensor of 2 rows or more), dict(sorted({d}.items())) for the order",
)
_DECIDE = Wording(
    "",
    "decide on {name} before the compiled call, or compute both sides and choose with torch.where",
    "a tensor in its place would break the graph: {function} branches on it",
)
_SET_BY_PACKAGE = Wording(
    "",
    "keep what sets {name} (a context manager, a setting) the same at every call, or warm up each "
    "value before the timed steps",
    "one graph per value",
)
_DEFAULT_DEVICE = Wording(
    "default device or function mode changed",
    "put `with torch.device(...)` around the creation of tensors only, not around the call",
)

FIXES: Mapping[tuple[str, str | None], Wording] = {
    ("CD101", "tensor"): Wording(
        "captured tensor", "pass {name} to {function} as an argument, or keep its metadata fixed"
    ),
    ("CD101", "object"): Wording(
        "captured function or object",
        "keep one object in {name}: choose between callables outside of the compiled region",
        "one compile per callable",
    ),
    ("CD101", "part"): Wording(
        "captured object's value",
        "write always in {function} into a preallocated buffer instead of asking {name}, and read "
        "the buffer outside when it is due",
        _DISABLE_COST,
    ),
    ("CD101", None): Wording(
        "closure flag",
        "remove the flag {name} from {function}: copy the value into a preallocated buffer every "
        "time, and read the buffer outside when it is due",
        _DISABLE_COST,
    ),
    ("CD102", None): Wording(
        "closure container",
        "replace {name} by a preallocated tensor that {function} writes in place (for a history: "
        "a ring buffer with index_copy_)",
        "disabling the function with torch.compiler.disable instead costs a graph break per call "
        "site",
    ),
    ("CD103", "created"): _GROWN._replace(title="lazily created buffer"),
    ("CD103", "companion"): Wording(
        "lazily filled cache",
        "fill the cache that {name} belongs to once at its largest size, in __init__ or by one "
        "eager call before compiling",
        "when the input length varies too, one recompile for that size remains (CD105)",
    ),
    ("CD103", None): _GROWN,
    ("CD104", "attribute_set"): Wording(
        "attribute added or removed", "set {name} in __init__, before the first call, and keep it"
    ),
    ("CD104", "length"): _ATTRIBUTE_CONTAINER,
    ("CD104", "members"): _ATTRIBUTE_CONTAINER,
    ("CD104", "keys"): _ATTRIBUTE_CONTAINER,
    ("CD104", "missing"): _ATTRIBUTE_CONTAINER,
    ("CD104", "type"): Wording(
        "attribute of another type",
        "keep the type of {name}: build one model per variant before compiling",
        "one compile per variant",
    ),
    ("CD104", "library"): _SET_BY_PACKAGE._replace(title="attribute of a package's object"),
    ("CD104", "foreign"): Wording(
        "attribute of a package's object",
        "keep a 0-dim buffer of your own, filled before the compiled call, and read that in "
        "{function} instead of {name}",
        "what is put in place of {name} itself its owner overwrites",
    ),
    ("CD104", "branch"): _DECIDE._replace(title="module attribute"),
    ("CD104", "number"): Wording(
        "module attribute",
        "make {name} a 0-dim buffer and change it in place (add_, fill_), or do not touch it in "
        "{function}",
        "the buffer is in state_dict unless persistent=False",
    ),
    ("CD104", None): Wording(
        "module attribute",
        "decide on {name} outside of the compiled region, or build one variant per value before "
        "compiling",
        "one compile per variant",
    ),
    ("CD117", "number"): _INSTANCE._replace(
        fix="compile the container of the instances once, or make {name} a 0-dim buffer"
    ),
    ("CD117", None): _INSTANCE,
    ("CD118", "zero_one"): Wording(
        "size 0 or 1 reached a dynamic graph",
        "pad {name} to at least 2, or call torch._dynamo.decorators.mark_unbacked({x}, dim) "
        "before the first call",
        "mark_unbacked may raise where the code branches on the size",
    ),
    ("CD118", "divisibility"): Wording(
        "dynamic size is no multiple any more", "pad {name} to the multiple"
    ),
    ("CD118", "duck_equal"): Wording(
        "sizes that were equal by accident differ",
        "make the sizes unequal in the first call, or set "
        "torch.fx.experimental._config.use_duck_shape = False",
    ),
    ("CD118", "equal"): Wording(
        "sizes that the graph needs equal differ",
        "pass inputs whose sizes are equal, or expand {name} before the compiled call",
    ),
    ("CD118", None): Wording(
        "dynamic size left its range",
        "warm up one size on each side of the bound that {function} sets on {name}, or remove the "
        "branch on the size",
        "one graph per range",
    ),
    ("CD106", "dtype"): Wording(
        "tensor of another dtype", "convert {name} with .to(dtype) before the compiled call", _COPY
    ),
    ("CD106", "stride"): Wording(
        "tensor of another layout", "call .contiguous() on {name} before the compiled call", _COPY
    ),
    ("CD106", "device"): Wording(
        "tensor on another device", "move {name} to one device before the compiled call"
    ),
    ("CD106", "rank"): Wording(
        "tensor of another rank",
        "give {name} one rank: unsqueeze or view it before the compiled call",
    ),
    ("CD106", "requires_grad"): Wording(
        "tensor with another requires_grad",
        "warm up {name} with and without requires_grad, or call .requires_grad_() on the input of "
        "the first of stacked blocks: those after it need gradients",
        "warming up keeps two graphs",
    ),
    ("CD106", "inference"): Wording(
        "inference tensor", "call .clone() on {name} outside of torch.inference_mode()", _COPY
    ),
    ("CD106", "parameter"): Wording(
        "parameter changed",
        "freeze, cast or replace {name} before the first compiled call; where it alternates, warm "
        "up both",
        "warming up keeps two graphs",
    ),
    ("CD106", "sparse"): Wording(
        "sparse tensor",
        "convert {name} to one layout, such as .to_dense(), before the compiled call",
    ),
    ("CD106", "conjugate"): Wording(
        "conjugated tensor", "call .resolve_conj() on {name} before the compiled call"
    ),
    ("CD106", "grad"): Wording(
        "gradient present or missing",
        "zero {name} instead of setting it to None (zero_grad(set_to_none=False))",
    ),
    ("CD106", "type"): _METADATA._replace(title="tensor of another type"),
    ("CD106", "subclass"): _METADATA._replace(title="tensor subclass"),
    ("CD106", "identity"): _METADATA._replace(title="another tensor at a static address"),
    ("CD106", None): _METADATA,
    ("CD113", None): Wording(
        "inputs alias differently",
        "pass {inputs} always as distinct tensors: .clone() one of them",
        _COPY,
    ),
    ("CD114", None): Wording(
        "argument is None in some calls",
        "warm up calls with and without {name}; or, where it is added or multiplied, pass zeros or "
        "ones instead of None",
        "warming up keeps two graphs",
    ),
    ("CD107", "tensor_index"): Wording(
        "0-dim tensor used as an index", "index with table.index_select(0, {i}.view(1))"
    ),
    ("CD107", "bool"): Wording(
        "bool argument",
        "warm up both values of {name}, or pass a bool tensor and use torch.where",
        "torch.where computes both sides",
    ),
    ("CD107", "branch"): _DECIDE._replace(title="Python value as argument"),
    ("CD107", "number"): Wording(
        "Python number as argument",
        "pass {name} as a 0-dim tensor",
        "an int can also stay one with torch.compile(dynamic=True)",
    ),
    ("CD107", None): Wording(
        "Python value as argument",
        "choose by {name} outside of the compiled function, or select from a table tensor",
        "one graph per value that is warmed up",
    ),
    ("CD108", "members"): _OTHER_KEYS,
    ("CD108", "keys"): _OTHER_KEYS,
    ("CD108", "missing"): _OTHER_KEYS,
    ("CD108", "type"): Wording(
        "container argument of another type", "pass {name} as one container type"
    ),
    ("CD108", None): Wording(
        "container argument of another length", "pass a padded tensor with a mask instead of {name}"
    ),
    ("CD110", "dead_object"): Wording(
        "a guarded object died", "keep {name} alive as long as the compiled function is used"
    ),
    ("CD110", "type"): Wording(
        "argument of another type", "pass one type for {name}, or tensors taken from it"
    ),
    ("CD110", None): Wording(
        "another function or class was passed",
        "create {name} once, outside of the loop; choose between callables outside of {function}, "
        "with one compiled function each",
    ),
    ("CD109", "environment"): Wording(
        "environment value changed", "read {name} once at import, outside of the region"
    ),
    ("CD109", "library"): _SET_BY_PACKAGE._replace(title="global variable of a package"),
    ("CD109", "foreign"): _SET_BY_PACKAGE._replace(title="global variable of a package"),
    ("CD109", "branch"): _DECIDE._replace(title="global variable"),
    ("CD109", "number"): Wording(
        "global variable",
        "pass {name} as a tensor argument, or make it a 0-dim tensor that is changed in place",
    ),
    ("CD109", None): Wording(
        "global variable",
        "read {name} outside of the compiled function and pass what follows from it",
        "one graph per value that is warmed up",
    ),
    ("CD111", "train_eval"): Wording(
        "train and eval alternate",
        "warm up both modes before the timed steps",
        "two graphs, bounded",
    ),
    ("CD111", "grad_mode"): Wording(
        "grad mode changed",
        "warm up with and without gradients before the timed steps",
        "two graphs, bounded",
    ),
    ("CD111", "inference_mode"): Wording(
        "inference mode changed",
        "warm up with and without torch.inference_mode() before the timed steps",
        "two graphs, bounded",
    ),
    ("CD111", "autocast"): Wording(
        "autocast changed",
        "enter autocast at one place for every call, best inside the compiled function",
    ),
    ("CD111", "default_device"): _DEFAULT_DEVICE,
    ("CD111", "torch_function_mode"): _DEFAULT_DEVICE,
    ("CD111", "set_once"): Wording(
        "global setting changed after the first compile",
        "set {setting} once, before the first compiled call",
    ),
    ("CD111", None): Wording(
        "global state of torch changed",
        "keep the state the same at every compiled call, or warm up each combination",
        "one graph per combination",
    ),
    ("CD112", None): Wording(
        "same code, another backend object",
        "create the backend and its options once, at module level, and compile {function} once",
        "a functools.partial made per call does not help",
    ),
    ("CD115", None): Wording(
        "number of hooks changed",
        "register all hooks before the first compiled call and keep them; decide inside the hook "
        "with a tensor",
    ),
    ("CD116", "option"): Wording(
        "{kind} of the optimizer changed",
        "pass {kind} as a tensor ({kind}=torch.tensor(...)) and change it with fill_",
    ),
    ("CD116", ".grad"): Wording(
        "a parameter without gradient in the optimizer step",
        "call zero_grad(set_to_none=False), or give every parameter a gradient",
    ),
    ("CD116", "param_groups"): Wording(
        "parameter groups changed", "add all groups before the first step"
    ),
    ("CD116", None): Wording(
        "optimizer state was created",
        "let the first step create the state during warm-up",
        "two compiles are normal for a compiled optimizer",
    ),
    ("CD190", "guard"): Wording(
        "recompile of unknown cause: {guard}",
        "could not determine the cause; the guard is shown as torch prints it",
    ),
    ("CD190", None): Wording(
        "recompile without a reason",
        "could not determine: torch gave no reason; try TORCH_LOGS=recompiles_verbose",
    ),
}


def wording_of(group: Group) -> Wording:
    """The wording of a group of causes."""
    if group.code == "CD105":
        return wording_of_sizes(group)
    kinds = (*_kinds_of_line(group), _kind_of(group), *_value_kinds(group), None)
    return next(FIXES[group.code, kind] for kind in kinds if (group.code, kind) in FIXES)


def _kinds_of_line(group: Group) -> Iterator[str]:
    """Whether the line is a package's, the value is one that only packages write, or the line
    decides by it: what can be changed then is something else."""
    if ownership_of(group.location.file) == "third_party":
        yield "library"
    elif _written_elsewhere(group):
        yield "foreign"
    elif any(decides_by(cause.line_text or "", cause.variable) for cause in group.causes):
        yield "branch"


def _written_elsewhere(group: Group) -> bool:
    """Only packages write the value: what is put in its place they overwrite."""
    writers = [writer for cause in group.causes for writer in cause.writers]
    return bool(writers) and all(ownership_of(w.file) != "user" for w in writers)


def _kind_of(group: Group) -> str:
    kind, variable = group.kind or "", group.first.variable
    if group.code == "CD101" and kind not in ("tensor", "object"):
        return "part" if "." in variable or "[" in variable else kind
    if group.code == "CD111":
        if any(name in kind for name in _SET_ONCE):
            return "set_once"
        return next((name for name in ("grad_mode", "autocast") if name in kind), kind)
    if group.code == "CD116" and not kind:
        return next((end for end in (".grad", "param_groups") if variable.endswith(end)), "")
    if group.code == "CD116":
        return "option"
    if group.code == "CD190":
        return "guard" if group.first.guard else ""
    return kind


def _value_kinds(group: Group) -> Iterator[str]:
    """Whether the guard expected a "bool" or a "number"."""
    if group.first.expected in ("True", "False"):
        yield "bool"
    with contextlib.suppress(ValueError):
        float(group.first.expected or "")
        yield "number"


RULES: tuple[Rule, ...] = tuple(
    RecompileRule(code, wording_of, with_sizes if code == "CD105" else None)
    for code in dict.fromkeys(("CD105", *(code for code, _ in FIXES)))
)
