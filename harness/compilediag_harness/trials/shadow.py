"""Shadow calls: a compiled call made eager too, on copies of what it is given, twice as it is, once
in float64. What differs is then the compiled code's own, not what came before the call; errors of
rounding are measured against the result in float64.

Copies are made of the function, its arguments and the modules that it reaches. Tensors that share
memory share it in the copy, too.
"""

from __future__ import annotations

import contextlib
import copy
import types
from dataclasses import dataclass, field
from typing import Any

from compilediag_harness.base.object_graph import get_class, list_parts
from compilediag_harness.shapes.side_effects import RandomStates, preserve_random_states
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.torch_internals.torch_open_calls import CallArguments
from compilediag_harness.trials.sampled_values import ValueSampler
from compilediag_harness.wire import ComparedValue, SampledValue, clip

MAX_BYTES = 1 << 30
"""Of tensors that one call reaches: more is not copied."""

MAX_DEPTH = 4
"""Functions that a function calls by the names of its own file are copied so far down."""

MAX_OBJECTS = 10_000


class CannotCopy(Exception):
    """A call cannot be made on copies; the text says why."""


class Copier:
    """One set of copies, for one call of one function."""

    def __init__(self, torch: Any, *, double: bool) -> None:
        self._torch, self._double = torch, double
        self._memory: dict[tuple[int, Any], Any] = {}
        self._memo: dict[int, Any] = {}
        self._bytes = 0
        self.floating = False
        """A floating tensor is among what was copied: results may be rounded."""

    def copy_call(self, call: CallArguments) -> CallArguments:
        """Copy a call: its function, its arguments and the modules it reaches.

        Raises:
            CannotCopy: a part of it is too large, or shares what no copy can have.
        """
        function = call.function
        owner, inner = (getattr(function, name, None) for name in ("__self__", "__func__"))
        try:
            args, kwargs = torch_api.map_leaves(self._copy_value, (call.args, call.kwargs))
            if inner is not None and not isinstance(owner, type):
                known = self._memo.get(id(owner))
                receiver = self._copy_object(owner) if known is None else known
                function = types.MethodType(inner, receiver)
            elif get_class(function) is types.FunctionType:
                function = self._copy_function(function, 0)
            return CallArguments(function, args, kwargs)
        except CannotCopy:
            raise
        except Exception as error:  # of the program's own classes
            raise CannotCopy(f"it cannot be copied: {type(error).__name__}: {error}") from error

    def _copy_value(self, value: Any) -> Any:
        """Copy a leaf of an argument, a captured variable or a global."""
        kind = get_class(value)
        if id(value) in self._memo:
            return self._memo[id(value)]
        if issubclass(kind, self._torch.Tensor):
            return self._copy_tensor(value)
        if issubclass(kind, self._torch.nn.Module):
            return self._copy_object(value)
        return value

    def _copy_tensor(self, value: Any) -> Any:
        torch = self._torch
        if not torch_api.is_plain_data(torch, value):
            raise CannotCopy(f"a {get_class(value).__name__} among its values cannot be copied")
        source = value.detach()
        # A negative or conjugate view has its own bits on the same memory.
        flags = source.is_neg() or source.is_conj()
        whole = source.resolve_conj().resolve_neg() if flags else source
        self.floating |= bool(whole.is_floating_point() or whole.is_complex())
        # By dtype too: a storage seen as two types is copied twice, which shares nothing.
        key = whole.untyped_storage().data_ptr(), whole.dtype
        flat = None if flags else self._memory.get(key)
        if flat is None:
            storage = whole.untyped_storage()
            self._bytes += storage.nbytes()
            if self._bytes > MAX_BYTES:
                raise CannotCopy(f"its tensors are larger than {MAX_BYTES >> 30} GiB")
            flat = torch.empty(0, dtype=whole.dtype, device=whole.device).set_(storage).clone()
            if self._double and flat.is_floating_point():
                flat = flat.double()
            self._memory[key] = flat
        copied = flat.as_strided(whole.size(), whole.stride(), whole.storage_offset())
        if issubclass(get_class(value), torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, requires_grad=value.requires_grad)
        self._memo[id(value)] = copied
        return copied

    def _copy_object(self, value: Any) -> Any:
        """Copy a module, or another object whose method is called."""
        # Invariant: tensors are in the memo first, so that `deepcopy` shares memory as they do.
        for tensor in _list_tensors(self._torch, value):
            self._copy_tensor(tensor)
        return copy.deepcopy(value, self._memo)

    def _copy_function(self, function: Any, depth: int) -> Any:
        """Make a function of the same code, on copies of modules and tensors that it names."""
        if id(function) in self._memo:
            return self._memo[id(function)]
        names = dict(function.__globals__)
        cells: list[types.CellType] = []
        for cell in function.__closure__ or ():
            cells.append(types.CellType())
            with contextlib.suppress(ValueError):  # it is not filled yet
                cells[-1].cell_contents = self._copy_captured(cell.cell_contents, depth)
        made = types.FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, tuple(cells)
        )
        made.__kwdefaults__ = function.__kwdefaults__
        made.__dict__.update(function.__dict__)
        self._memo[id(function)] = made  # before its globals: a function may name itself
        for name in function.__code__.co_names:
            if name in names:
                names[name] = self._copy_captured(names[name], depth)
        return made

    def _copy_captured(self, value: Any, depth: int) -> Any:
        if get_class(value) is types.FunctionType and depth < MAX_DEPTH:
            is_library = str(value.__module__).partition(".")[0] == "torch"
            return value if is_library else self._copy_function(value, depth + 1)
        return self._copy_value(value)


_Samples = dict[str, SampledValue]

MAX_REASON = 240


@dataclass(slots=True)
class Shadow:
    """The sampled values, eager, of a call that is about to be made compiled."""

    call: CallArguments
    eager: _Samples = field(default_factory=dict[str, SampledValue])
    again: _Samples = field(default_factory=dict[str, SampledValue])
    exact: _Samples = field(default_factory=dict[str, SampledValue])
    """In float64; empty where that cannot be had, or random numbers are drawn."""
    complete: bool = True
    floating: bool = False
    random_after: object = None
    """The generators after the eager call."""
    problem: str | None = None
    """Why there is nothing to compare with."""


def _run_eager(
    torch: Any, reader: ValueSampler, call: CallArguments, *, double: bool = False
) -> Shadow:
    """Run a call eager, on copies; nothing is compiled, and the generators are restored."""
    copier = Copier(torch, double=double)
    # Invariant: `set_stance` raises inside a compiled region: only for a call that begins.
    with preserve_random_states(torch), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        copied = copier.copy_call(call)
        value = copied.function(*copied.args, **copied.kwargs)
        eager, complete = _read_samples(reader, value, copied)
        drawn = RandomStates.read(torch).digests
        return Shadow(call, eager, complete=complete, floating=copier.floating, random_after=drawn)


def make_shadow(torch: Any, reader: ValueSampler, call: CallArguments) -> Shadow:
    """Make the shadow of a call that begins; the generators stay where they are. Where it cannot be
    made, its `problem` says why."""
    before = RandomStates.read(torch).digests
    try:
        first, again = _run_eager(torch, reader, call), _run_eager(torch, reader, call)
    except CannotCopy as error:
        return Shadow(call, problem=clip(str(error), MAX_REASON))
    except Exception as error:  # of the program, on copies
        text = str(error).partition("\n")[0]
        problem = clip(f"eager, on copies: {type(error).__name__}: {text}", MAX_REASON)
        return Shadow(call, problem=problem)
    first.again = again.eager
    first.complete &= again.complete
    if first.floating and first.random_after == before:
        # Random numbers of another type are others.
        with contextlib.suppress(Exception):
            double = _run_eager(torch, reader, call, double=True)
            first.complete &= double.complete
            first.exact = double.eager if double.random_after == before else {}
    return first


def compare_with_shadow(
    reader: ValueSampler, shadow: Shadow, result: Any
) -> tuple[int, tuple[ComparedValue, ...], bool]:
    """Compare the result of the compiled call, after it, with its shadow.

    Returns:
        how many values were compared, those that are not equal bit for bit or have no content that
        can be, and whether these are all.
    """
    samples, complete = _read_samples(reader, result, shadow.call)
    differing: list[ComparedValue] = []
    count = 0
    for path in {**shadow.eager, **samples}:
        ours, theirs = samples.get(path), shadow.eager.get(path)
        if ours is None or theirs is None:
            differing.append(ComparedValue(path, _make_tuple(ours), _make_tuple(theirs)))
            continue
        stable = _is_same(theirs, shadow.again.get(path))
        count += 1
        if not _is_same(ours, theirs) or not stable:
            exact = _make_tuple(shadow.exact.get(path))
            differing.append(ComparedValue(path, (ours,), (theirs,), exact, stable))
    return count, tuple(differing), complete and shadow.complete


def _make_tuple(sample: SampledValue | None) -> tuple[SampledValue, ...]:
    return () if sample is None else (sample,)


def _is_same(one: SampledValue, other: SampledValue | None) -> bool:
    """True if two sampled values are equal. A value without a digest is too large to be read whole,
    or of a kind with no content."""
    if one.kind == "other" and not one.digest:
        return other is not None and one == other
    return one == other


def _read_samples(reader: ValueSampler, value: Any, call: CallArguments) -> tuple[_Samples, bool]:
    """Read what the call returned, and what it left in its arguments and in the buffers of its
    module; and whether that is all."""
    parts = {"": value, "argument": call.args, "argument ": call.kwargs}
    buffers = getattr(getattr(call.function, "__self__", None), "named_buffers", None)
    if buffers is not None:
        parts["buffer "] = dict(buffers())
    samples: _Samples = {}
    complete = True
    for name, part in parts.items():
        part_samples, whole = reader.read(part)
        # Of arguments only tensors can have been written.
        complete = complete and (whole or bool(name))
        written = (sample for sample in part_samples if not name or sample.kind == "tensor")
        samples.update((f"{name}{sample.path}", sample) for sample in written)
    return samples, complete


def _list_tensors(torch: Any, value: Any) -> list[Any]:
    """List the tensors among parameters, buffers and attributes of an object and of its modules."""
    tensors: dict[int, Any] = {}
    waiting, seen = [value], set[int]()
    while waiting and len(seen) < MAX_OBJECTS:
        owner = waiting.pop()
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        for _, held in list_parts(owner):
            if issubclass(get_class(held), torch.Tensor):
                tensors[id(held)] = held
            elif issubclass(get_class(held), torch.nn.Module):
                waiting.append(held)
            elif get_class(held) in (list, tuple):
                waiting.extend(x for x in held[:256] if issubclass(get_class(x), torch.nn.Module))
    return list(tensors.values())
