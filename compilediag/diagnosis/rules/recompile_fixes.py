"""What happened and what to change, for each family of recompiles (docs/rules/CD1xx.md).

In braces: {name}, {function} and other fields of `_filled`. A wording stands under the kind of its
causes; "bool" and "number" are guards that expected such a value, None is every other kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.fix_choice import break_before, is_of_object, kinds_of
from compilediag.diagnosis.rules.keywords import KEYWORD, with_keywords
from compilediag.diagnosis.rules.recompiles import CARRIED, TEMPORARY, WAYS, RecompileRule, Wording
from compilediag.diagnosis.rules.sizes import with_sizes, wording_of_sizes

_VARIANTS = "one graph per value, each a compile: only for values that are few"
_COPY = "a copy of the tensor per call"
_WARM = "warm up each value of {name} before the timed steps"
_APART = "write one function per value of {name}, compile each, and choose outside"
_CHANGED_IN_PLACE = "make it a 0-dim tensor that is changed in place (fill_, add_)"
_BREAKS_BRANCH = "a tensor in its place breaks the graph where {function} branches on it"
_RING = (
    "write it into a preallocated tensor at a position held in a 0-dim tensor (a ring buffer: "
    "index_copy_)"
)
_DISABLED = "put torch.compiler.disable on the function that fills {name}"
_DISABLE_COST = "torch.compiler.disable costs a graph break per call site"
_FILL_FIRST = "fill {name} with all its keys before the first compiled call"
_READ_OUTSIDE = (
    "pass what {function} computes from {name} as a tensor argument, made before the compiled call"
)

_ARGUMENT_GROWS = Wording(
    "tensor in an argument object created or grown",
    "pass an object whose {name} has its largest size from the first compiled call on, and is "
    "written in place (index_copy_)",
    "or warm up a new object and several sizes of it: torch makes the size dynamic at its second "
    "value",
)
_CALLABLE = Wording(
    "",
    "write one function per callable in {name}, compile each, and choose outside; or warm up each "
    "callable, made once, before the timed steps",
    "one compile per callable",
)
_VALUE = Wording("", f"{_WARM}; or {_APART}", _VARIANTS)
_DECIDE = Wording(
    "",
    "decide on {name} before the compiled call, with one compiled function per outcome; or compute "
    "both sides and choose with torch.where, {name} a 0-dim tensor",
    _BREAKS_BRANCH,
)
_GROWS = Wording(
    "",
    f"return what {{function}} puts into {{name}} and collect it outside; or {_RING}; or "
    f"{_DISABLED}",
    _DISABLE_COST,
)
_LENGTH = Wording("", _READ_OUTSIDE)
_KEYS = Wording("", f"{_FILL_FIRST}; or {_READ_OUTSIDE}")
_SET_BY_PACKAGE = Wording(
    "",
    "keep what sets {name} (a context manager, a setting) the same at every call; or "
    "warm up every state that the timed steps have, {name} being one part of it",
    _VARIANTS,
)
_LAZY = "when the input length varies too, one recompile for that size remains (CD105)"
_METADATA = Wording("tensor metadata changed", "pass {name} with one type and layout at every call")
_OTHER_KEYS = Wording(
    "container argument with other keys",
    "pass {name} with the same keys at every call, a neutral value for a key that has none (a "
    "tensor of 2 rows or more); or warm up each set of keys",
    "one graph per set of keys",
)
_ENVIRONMENT = Wording(
    "environment value changed", "read {name} once at import, outside the compiled function"
)
_DEFAULT_DEVICE = Wording(
    "default device or function mode changed",
    "put `with torch.device(...)` around the creation of tensors only, not around the call",
)
_ATTRIBUTE = "module attribute"
_ATTRIBUTE_CONTAINER = "attribute container"
_CAPTURED_CONTAINER = "closure container"
_GLOBAL = "global variable"
_OF_OBJECT = "attribute of an object"
_INSTANCE = "instances share code and differ"
_ARGUMENT = "Python value as argument"
_NUMBER = "Python number as argument"

FIXES: Mapping[tuple[str, str | None], Wording] = {
    ("CD101", "tensor"): Wording(
        "captured tensor",
        "keep one tensor in {name}, of its largest size, and change it with copy_",
    ),
    ("CD101", "hook"): Wording(
        "closure flag",
        "copy the value into a preallocated buffer at every call of {function} instead of reading "
        "{name}, and read the buffer outside when it is due; or put torch.compiler.disable on "
        "{function}",
        "costs a kernel each step; disabling costs a graph break per call site, and the loop that "
        "calls it runs eager",
    ),
    ("CD101", "hook_number"): Wording(
        "captured number",
        "make {name} a 0-dim tensor that is changed in place (add_, fill_); or put "
        "torch.compiler.disable on {function}",
        _DISABLE_COST,
    ),
    ("CD101", "callable"): _CALLABLE._replace(title="captured function or object"),
    ("CD101", "environment"): _ENVIRONMENT,
    ("CD101", "branch"): _DECIDE._replace(title="captured value"),
    ("CD101", "number"): Wording(
        "captured number",
        "pass {name} to {function} as an argument, a 0-dim tensor; or " + _CHANGED_IN_PLACE,
        _BREAKS_BRANCH,
    ),
    ("CD101", None): _VALUE._replace(title="captured value"),
    ("CD102", "hook"): Wording(
        _CAPTURED_CONTAINER,
        "replace {name} by a preallocated tensor that {function} writes in place (for a history: "
        "a ring buffer with index_copy_); or put torch.compiler.disable on {function}",
        _DISABLE_COST,
    ),
    ("CD102", "grows"): _GROWS._replace(title=_CAPTURED_CONTAINER),
    ("CD102", "keys"): _KEYS._replace(title=_CAPTURED_CONTAINER),
    ("CD102", "length"): _LENGTH._replace(title=_CAPTURED_CONTAINER),
    ("CD103", "created"): Wording(
        "lazily created buffer",
        "create {name} in __init__, before the first compiled call; or by one call of the "
        "uncompiled module",
        _LAZY,
    ),
    ("CD103", "companion"): Wording(
        "lazily filled cache",
        "fill the cache that {name} belongs to once at its largest size, in __init__; or by one "
        "eager call before compiling",
        _LAZY,
    ),
    ("CD103", "argument"): _ARGUMENT_GROWS,
    ("CD103", "argument_branch"): _ARGUMENT_GROWS,
    ("CD103", None): Wording(
        "lazily grown buffer",
        "allocate {name} at its largest size in __init__ and slice it; or, where it is appended "
        "to, write at a position held in a 0-dim buffer (index_copy_), with a mask instead of a "
        "slice",
        _LAZY,
    ),
    ("CD104", "argument_branch"): Wording(
        "attribute of an argument object",
        "initialise the object that has {name} before the compiled call; or warm up each value of "
        "{name} before the timed steps",
        _VARIANTS,
    ),
    ("CD104", "attribute_set"): Wording(
        "attribute added or removed", "set {name} in __init__, before the first call, and keep it"
    ),
    ("CD104", "modules"): Wording(
        "submodules added or removed",
        "add all submodules before the first compiled call",
        "a submodule that is not used yet can be added with a weight of 0",
    ),
    ("CD104", "grows"): _GROWS._replace(title=_ATTRIBUTE_CONTAINER),
    ("CD104", "keys"): _KEYS._replace(title=_ATTRIBUTE_CONTAINER),
    ("CD104", "length"): _LENGTH._replace(title=_ATTRIBUTE_CONTAINER),
    ("CD104", "type"): Wording("attribute of another type", _WARM, _VARIANTS),
    ("CD104", "callable"): _CALLABLE._replace(title=_ATTRIBUTE),
    ("CD104", "filled"): Wording(
        "attribute that the compiled code fills",
        "set {name} before the first compiled call, to the value that {function} gives it",
    ),
    ("CD104", "counter"): Wording(
        "attribute that a package counts up",
        "move the call that changes {name} out of the compiled function; or put "
        "torch.compiler.disable on what makes that call",
        "a warm-up does not help, it grows at every call; torch.compiler.disable costs a graph "
        "break per call site",
    ),
    ("CD104", "library"): _SET_BY_PACKAGE._replace(title="attribute that a package reads"),
    ("CD104", "foreign"): Wording(
        "attribute of a package's object",
        "keep a 0-dim buffer of your own, filled before the compiled call, and read that in "
        "{function} instead of {name}",
        "what is put in place of {name} itself its owner overwrites",
    ),
    ("CD104", "branch"): _DECIDE._replace(title=_ATTRIBUTE),
    ("CD104", "object_counter"): Wording(
        _OF_OBJECT,
        "make the calls with the first two values of {name} before the timed steps: torch makes it "
        "dynamic at the second",
    ),
    ("CD104", "object_number"): Wording(
        _OF_OBJECT,
        f"{_WARM}; or, where {{function}} only adds it or multiplies by it, make it a 0-dim tensor "
        "that is changed in place (fill_, add_)",
        _VARIANTS,
    ),
    ("CD104", "item_number"): Wording(
        "item of a module attribute",
        "make {name} a 0-dim tensor that is changed in place (fill_, add_)",
        _BREAKS_BRANCH,
    ),
    ("CD104", "number"): Wording(
        _ATTRIBUTE,
        "make {name} a 0-dim buffer and change it in place (add_, fill_); or do not touch it in "
        "{function}",
        "the buffer is in state_dict unless persistent=False; " + _BREAKS_BRANCH,
    ),
    ("CD104", None): Wording(_ATTRIBUTE, _WARM, _VARIANTS),
    ("CD117", "number"): Wording(
        _INSTANCE,
        "compile the container of the instances once; or make {name} a 0-dim buffer",
        "raise recompile_limit only as a last resort: each instance costs a compile",
    ),
    ("CD117", "partial"): Wording(
        _INSTANCE,
        "pass {name} as an argument of one compiled function, a number as a 0-dim tensor",
    ),
    ("CD117", None): Wording(
        _INSTANCE,
        "compile the container of the instances once",
        "raise recompile_limit only as a last resort: each instance costs a compile",
    ),
    ("CD118", "zero_one"): Wording(
        "size 0 or 1 reached a dynamic graph",
        "pad {name} to at least 2; or call torch._dynamo.decorators.mark_unbacked({x}, dim) "
        "before the first call",
        "mark_unbacked may raise where the code branches on the size",
    ),
    ("CD118", "stride"): Wording(
        "layout that the graph needs, or excludes",
        "call .contiguous() on {name} before the compiled call; or warm up both layouts",
        _COPY,
    ),
    ("CD118", "number"): Wording(
        "number left the range of its graph",
        "warm up values on both sides of `{guard}` before the timed steps",
        "one graph per side",
    ),
    ("CD118", "divisibility"): Wording(
        "dynamic size is no longer a multiple", "pad {name} to the multiple"
    ),
    ("CD118", "duck_equal"): Wording(
        "sizes that were equal by accident differ",
        "make the sizes unequal in the first call; or set "
        "torch.fx.experimental._config.use_duck_shape = False",
    ),
    ("CD118", "constant"): Wording(
        "size that the graph needs, or excludes",
        "warm up one size for each side of the condition on {name}; or decide by the size before "
        "the compiled call",
        "one graph for each side",
    ),
    ("CD118", "unequal"): Wording(
        "sizes that were unequal are equal",
        "warm up equal and unequal sizes; or decide by the sizes before the compiled call",
        "one graph for each side",
    ),
    ("CD118", "equal"): Wording(
        "sizes that the graph needs equal differ",
        "pass inputs whose sizes are equal; or warm up equal and unequal sizes",
    ),
    ("CD118", None): Wording(
        "dynamic size left its range",
        "warm up one size on each side of the bound that {function} sets on {name}; or remove the "
        "branch on the size",
        "one graph per range",
    ),
    ("CD106", "dtype"): Wording(
        "tensor of another dtype",
        "convert {name} to one dtype before the compiled call: .to(dtype), or .astype of an array",
        _COPY,
    ),
    ("CD106", "stride"): Wording(
        "tensor of another layout", "call .contiguous() on {name} before the compiled call", _COPY
    ),
    ("CD106", "channels_last"): Wording(
        "tensor of another layout",
        "call .to(memory_format=torch.channels_last) on {name} before the compiled call",
        "the layout of the first call; a copy of a tensor that has another",
    ),
    ("CD106", "channels_last_3d"): Wording(
        "tensor of another layout",
        "call .to(memory_format=torch.channels_last_3d) on {name} before the compiled call",
        "the layout of the first call; a copy of a tensor that has another",
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
        "warm up {name} with and without requires_grad; or, where blocks are stacked, call "
        ".requires_grad_() on the input of the first: the inputs of the others need gradients",
        "warming up keeps two graphs",
    ),
    ("CD106", "inference"): Wording(
        "inference tensor",
        "call .clone() on {name} outside torch.inference_mode(); or, where every call is inside "
        "of it, make the first {name} there too",
        _COPY,
    ),
    ("CD106", "normal"): Wording(
        "inference tensor expected",
        "call .clone() on {name} inside torch.inference_mode(), as it was made there in the "
        "first call; or use torch.no_grad() instead of torch.inference_mode()",
        _COPY,
    ),
    ("CD106", "frozen"): Wording(
        "parameter frozen or released",
        "warm up {name} with and without requires_grad; or set requires_grad before the first "
        "compiled call, where it does not alternate",
        "warming up keeps two graphs",
    ),
    ("CD106", "frozen_state"): Wording(
        "parameter frozen or released",
        "warm up every state that the timed steps have, {name} with and without requires_grad "
        "being one part of it",
        "one graph per state",
    ),
    ("CD106", "parameter"): Wording(
        "parameter changed", "cast or replace {name} before the first compiled call"
    ),
    ("CD106", "conjugate"): Wording(
        "conjugated tensor", "call .resolve_conj() on {name} before the compiled call", _COPY
    ),
    ("CD106", "grad"): Wording(
        "gradient present or missing",
        "zero {name} instead of setting it to None (zero_grad(set_to_none=False)), and have all "
        "gradients before the first compiled call",
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
    ("CD114", "cache"): Wording(
        "argument is None in the first call and grows",
        "pass {name} preallocated at its largest length in every call, and write into it at a "
        "position given as a tensor (index_copy_), with a mask",
        "costs the work of the largest length",
    ),
    ("CD114", None): Wording(
        "argument is None in some calls",
        "warm up calls with and without {name}; or, where {name} is only added or multiplied, pass "
        "zeros or ones instead of None",
        "warming up keeps two graphs",
    ),
    ("CD114", "object"): Wording(
        "argument is None in some calls",
        "warm up calls with and without {name}",
        "warming up keeps two graphs",
    ),
    ("CD107", "tensor_index"): Wording(
        "0-dim tensor used as an index", "index with table.index_select(0, {i}.view(1))"
    ),
    ("CD107", "bool"): Wording(
        "bool argument",
        "warm up both values of {name}; or pass a bool tensor and choose with torch.where",
        "torch.where computes both sides",
    ),
    ("CD107", "branch"): _DECIDE._replace(title=_ARGUMENT),
    ("CD107", "table"): Wording(
        _NUMBER,
        "where {name} indexes a list of numbers, make the list a tensor (in a module by "
        f"register_buffer) and compile with torch.compile(dynamic=True); or {_WARM}",
        "an item of a list needs its index as a constant of the graph, one of a tensor does not",
    ),
    ("CD107", "constant"): Wording(
        _NUMBER,
        _WARM,
        "the code needs each value as a constant of its own graph: only for few values",
    ),
    ("CD107", "mixed"): Wording(
        "number in some calls, tensor in others",
        "pass {name} as a tensor at every call, torch.tensor({i}), of the shape and dtype that it "
        "has in the others",
    ),
    ("CD107", "int"): Wording(
        _NUMBER,
        "compile with torch.compile(dynamic=True); or, where it is no size or bound, pass {name} "
        "as a 0-dim tensor",
        "sizes and ints become dynamic: graphs may run slower, and 0 and 1 stay constants",
    ),
    ("CD107", "number"): Wording(
        _NUMBER,
        "pass {name} as a 0-dim tensor; or compile with torch.compile(dynamic=True)",
        "dynamic=True makes sizes dynamic too",
    ),
    ("CD107", None): Wording(_ARGUMENT, f"{_WARM}; or {_APART}", _VARIANTS),
    ("CD108", "held"): Wording(
        "container of a package with other keys",
        "warm up every kind of call that the timed steps have: a package passes {name}",
        "one graph per set of keys",
    ),
    ("CD108", "members"): _OTHER_KEYS,
    ("CD108", "missing"): _OTHER_KEYS,
    ("CD108", "keyword"): KEYWORD,
    ("CD108", "keys"): Wording(
        "container argument with other keys",
        "pass {name} with its keys in one order, where only that differs (dict(sorted("
        "{d}.items()))); or warm up each set of keys",
        "one graph per set of keys",
    ),
    ("CD108", "type"): Wording(
        "container argument of another type", "pass {name} as one container type"
    ),
    ("CD108", None): Wording(
        "container argument of another length",
        "where {name} holds tensors, pass a padded one with a mask instead; or warm up each length",
        "one graph per length that is warmed up",
    ),
    ("CD110", "dead_object"): Wording(
        "a guarded object died",
        "create {name} once, and keep it as long as the compiled function is used",
    ),
    ("CD110", "type"): Wording(
        "argument of another type", "warm up each type of {name} before the timed steps", _VARIANTS
    ),
    ("CD110", None): Wording(
        "another function or class was passed",
        "define {name} once, outside the loop; or, where several are used, write one function "
        "per callable, compile each, and choose outside",
    ),
    ("CD109", "environment"): _ENVIRONMENT,
    ("CD109", "library"): _SET_BY_PACKAGE._replace(title="global variable of a package"),
    ("CD109", "grows"): _GROWS._replace(title=_GLOBAL),
    ("CD109", "keys"): _KEYS._replace(title=_GLOBAL),
    ("CD109", "length"): _LENGTH._replace(title=_GLOBAL),
    ("CD109", "callable"): _CALLABLE._replace(title=_GLOBAL),
    ("CD109", "branch"): _DECIDE._replace(title=_GLOBAL),
    ("CD109", "number"): Wording(
        _GLOBAL,
        "pass {name} to {function} as an argument, a 0-dim tensor; or " + _CHANGED_IN_PLACE,
        _BREAKS_BRANCH,
    ),
    ("CD109", None): _VALUE._replace(title=_GLOBAL),
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
        "enter autocast at one place for every call, best inside the compiled function; or warm up "
        "with and without it",
    ),
    ("CD111", "default_device"): _DEFAULT_DEVICE,
    ("CD111", "torch_function_mode"): _DEFAULT_DEVICE,
    ("CD111", "set_once"): Wording(
        "global setting changed after the first compile",
        "set {setting} once, before the first compiled call",
    ),
    ("CD111", None): Wording(
        "global state of torch changed",
        "keep the state the same at every compiled call; or warm up each state",
        "one graph per state",
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
    ("CD116", "lr"): Wording(
        "lr of the optimizer changed",
        "construct the optimizer with lr=torch.tensor(...): torch's schedulers change it in place, "
        "and other code with fill_; or, where optimizer.step() is compiled, leave it out",
    ),
    ("CD116", "option"): Wording(
        "{kind} of the optimizer changed",
        "keep {kind} constant (a scheduler with cycle_momentum=False)",
        "torch makes a float dynamic at its second value: one recompile in all",
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
"""Ways are separated as `WAYS` reads them. tests/torch/test_advice.py runs each."""


def wording_of(group: Group, causes: RunCauses) -> Wording:
    """The wording of a group of causes."""
    broken = break_before(group)
    wording = wording_of_sizes(group, broken) if group.code == "CD105" else _row(group, causes)
    if broken is None or group.code == "CD105":
        return wording
    if group.variable.startswith(TEMPORARY):
        return wording._replace(fix=f"remove the graph break at {broken.place}", caveat=CARRIED)
    first, *_ = WAYS.split(wording.fix)
    return wording._replace(
        fix=f"remove the graph break at {broken.place}; or, if {{name}} is an argument of "
        f"`{broken.function}`, {first}",
        caveat=CARRIED,
    )


def _row(group: Group, causes: RunCauses) -> Wording:
    kinds = (*kinds_of(group, causes), None)
    wording = next(FIXES[group.code, kind] for kind in kinds if (group.code, kind) in FIXES)
    of_object = wording.title == _ATTRIBUTE and is_of_object(group)
    return wording._replace(title=_OF_OBJECT) if of_object else wording


_ENRICHED = {"CD105": with_sizes, "CD108": with_keywords}

RULES: tuple[Rule, ...] = tuple(
    RecompileRule(code, wording_of, _ENRICHED.get(code))
    for code in dict.fromkeys(("CD105", *(code for code, _ in FIXES)))
)
