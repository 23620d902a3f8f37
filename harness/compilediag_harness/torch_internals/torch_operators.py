"""Schemas of torch's operators."""

from __future__ import annotations

from collections.abc import Collection

from compilediag_harness.torch_internals.torch_names import get_imported, lookup


def is_tensor_taken(name: str, argument: int | str, numbers: Collection[int | str]) -> bool | None:
    """True where an operator, or a method of tensors, takes a tensor for an argument of its call.

    Args:
        name: of the operator, such as "lerp" or "add_".
        argument: its position, that of the tensor whose method it is counted as 0, or its name.
        numbers: the arguments that are numbers as the call is written: no overload takes them for
            tensors.

    Returns:
        None where torch has no such operator, or no such argument of it.
    """
    get_schemas = lookup(get_imported("torch._C"), "_jit_get_schemas_for_operator")
    found = False
    for schema in () if get_schemas is None else get_schemas(f"aten::{name}"):
        types = {
            key: str(parameter.type)
            for at, parameter in enumerate(schema.arguments)
            for key in (parameter.name, *(() if parameter.kwarg_only else (at,)))
        }
        found = found or argument in types
        if "Tensor" in types.get(argument, "") and not any(
            "Tensor" in types.get(number, "") for number in numbers
        ):
            return True
    return False if found else None
