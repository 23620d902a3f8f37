"""Schemas of torch's operators."""

from __future__ import annotations

from collections.abc import Collection

from compilediag_harness.torch_internals.torch_names import get_imported, lookup

_SCALARS = {"number": "scalar", "Optional[number]": "scalar", "float": "float"}


def classify_argument(name: str, argument: int | str, numbers: Collection[int | str]) -> str | None:
    """Classify what an operator, or a method of tensors, takes for an argument of its call.

    Args:
        name: of the operator, such as "lerp" or "add_".
        argument: its position, that of the tensor whose method it is counted as 0, or its name.
        numbers: the arguments that are numbers as the call is written: no overload takes them for
            tensors.

    Returns:
        "operand" for a tensor, "scalar" for any number, "float" for one that is no symbol,
        "number" for others of Python; None where torch has no such operator, or no such argument.
    """
    get_schemas = lookup(get_imported("torch._C"), "_jit_get_schemas_for_operator")
    kind = None
    for schema in () if get_schemas is None else get_schemas(f"aten::{name}"):
        types = {
            key: str(parameter.type)
            for at, parameter in enumerate(schema.arguments)
            for key in (parameter.name, *(() if parameter.kwarg_only else (at,)))
        }
        taken = types.get(argument, "")
        if "Tensor" in taken and not any("Tensor" in types.get(number, "") for number in numbers):
            return "operand"
        if taken and kind != "scalar":
            kind = _SCALARS.get(taken, "number")
    return kind


def is_symbolic(name: str) -> bool:
    """True where torch computes a function of `math` on symbols, as it is written."""
    return hasattr(get_imported("torch"), f"_sym_{name}")
