"""Which expressions only compute: by their text nothing is changed, drawn or written by them, and
whether they raise does not depend on the numbers in their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst

from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.codemods.tree import Source


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


ELEMENTWISE = words(
    """abs absolute neg negative sign relu relu6 gelu silu mish selu elu celu softplus softsign
    hardtanh hardswish hardsigmoid leaky_relu logsigmoid sigmoid tanh sin cos atan erf clamp
    clamp_min clamp_max clip round floor ceil trunc nan_to_num square maximum minimum where lerp
    logical_and logical_or logical_not logical_xor isnan isinf isfinite eq ne lt le gt ge sub mul
    """
)
_SHAPES = words(
    """sum mean amax amin max min argmax argmin any all count_nonzero cumsum norm vector_norm
    softmax log_softmax logsumexp normalize layer_norm rms_norm matmul mm bmm einsum linear dot
    outer cat stack concat view reshape flatten unflatten squeeze unsqueeze transpose permute
    expand expand_as movedim roll flip tril triu zeros ones zeros_like ones_like full full_like
    arange tensor float double half bfloat16 long int bool to type_as detach clone contiguous size
    dim numel t"""
)
PURE = ELEMENTWISE | _SHAPES
"""Functions of torch and methods of tensors. Not those that draw random numbers, that check their
numbers (an index, a factorisation), or that other classes have for something else (`add`)."""

FINITE_AT_ONE = words("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sinh cosh pow div")
"""Pure ones that are not finite, or have no finite gradient, for some numbers; for 1 they are."""

BOOLEAN = words(
    """any all isnan isinf isfinite logical_and logical_or logical_not logical_xor eq ne lt le gt
    ge bool"""
)
"""Those that return tensors of truth values."""

FRESH = words(
    """sum mean amax amin max min argmax argmin any all count_nonzero norm abs square sigmoid tanh
    prod std var logsumexp"""
)
"""Those whose result shares no memory with what they are made from."""

_NAMESPACES = ("torch", "torch.nn.functional", "torch.special", "torch.linalg")
_ARITHMETIC = (
    libcst.Add,
    libcst.Subtract,
    libcst.Multiply,
    libcst.Divide,
    libcst.Power,
    libcst.MatrixMultiply,
    libcst.BitAnd,
    libcst.BitOr,
    libcst.BitXor,
)
_ORDERS = (
    libcst.LessThan,
    libcst.LessThanEqual,
    libcst.GreaterThan,
    libcst.GreaterThanEqual,
    libcst.Equal,
    libcst.NotEqual,
)
_CONSTANTS = (libcst.Integer, libcst.Float, libcst.SimpleString, libcst.Ellipsis)


def code_of(node: libcst.CSTNode) -> str:
    """The text of a node."""
    return libcst.Module([]).code_for_node(node)


def dotted(node: libcst.CSTNode) -> str:
    """A name with its attributes, "torch.nn"; empty for anything else."""
    if isinstance(node, libcst.Name):
        return node.value
    if isinstance(node, libcst.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr.value}"
    return ""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an expression stands: what names mean there."""

    source: Source
    imported: Mapping[str, str]
    """Names of the file by what they are imported as, "F" for "torch.nn.functional"."""
    raises_anyway: bool = False
    """The expression is computed in every call, with or without an edit: where it divides by 0, it
    raises in both."""

    def torch_function(self, call: libcst.Call) -> str | None:
        """The name of the function of torch that is called, or of the method of a tensor."""
        full = self.imported_name(call.func)
        if full is not None:
            space, _, name = full.rpartition(".")
            return name if space in _NAMESPACES else None
        return call.func.attr.value if isinstance(call.func, libcst.Attribute) else None

    def imported_name(self, node: libcst.CSTNode) -> str | None:
        """What a name stands for that is imported, "torch.nn.functional.relu"."""
        root, _, rest = dotted(node).partition(".")
        full = self.imported.get(root)
        return ".".join(part for part in (full, rest) if part) if full is not None else None

    def is_method(self, call: libcst.Call) -> bool:
        """Whether it is called on a value, not in a module that is imported."""
        return isinstance(call.func, libcst.Attribute) and self.imported_name(call.func) is None

    def is_finiteness_test(self, condition: libcst.BaseExpression) -> bool:
        """Whether a condition is about numbers that are not finite."""
        calls = self.source.below(condition, libcst.Call)
        tests = ("isnan", "isinf", "isfinite")
        return any(self.torch_function(call) in tests for call in calls)

    def is_boolean(self, condition: libcst.BaseExpression) -> bool:
        """Whether a tensor of truth values is evident from the text."""
        if isinstance(condition, libcst.Comparison):
            return True
        if isinstance(condition, libcst.UnaryOperation):
            return self.is_boolean(condition.expression)
        if isinstance(condition, libcst.BinaryOperation):
            return self.is_boolean(condition.left) and self.is_boolean(condition.right)
        if not isinstance(condition, libcst.Call):
            return False
        return self.torch_function(condition) in BOOLEAN

    def require_pure(self, node: libcst.BaseExpression) -> None:
        """Raises EditImpossible where an expression may do more than compute."""
        if not self._is_pure(node):
            raise EditImpossible(f"`{code_of(node)}` may do more than compute a value")

    def _is_pure(self, node: libcst.CSTNode) -> bool:
        if isinstance(node, (libcst.Name, *_CONSTANTS)):
            return True
        if isinstance(node, libcst.Attribute):
            return self._is_pure(node.value)
        if isinstance(node, (libcst.Tuple, libcst.List)):
            return all(self._is_pure(element.value) for element in node.elements)
        if isinstance(node, libcst.UnaryOperation):
            return not isinstance(node.operator, libcst.Not) and self._is_pure(node.expression)
        if isinstance(node, libcst.BinaryOperation):
            allowed = self.raises_anyway or _is_arithmetic(node)
            return allowed and self._is_pure(node.left) and self._is_pure(node.right)
        if isinstance(node, libcst.Comparison):
            compared = [node.left, *(each.comparator for each in node.comparisons)]
            ordered = all(isinstance(each.operator, _ORDERS) for each in node.comparisons)
            return ordered and len(compared) == 2 and all(map(self._is_pure, compared))
        if isinstance(node, libcst.Subscript):
            return self._is_pure(node.value) and all(map(_is_constant_index, node.slice))
        return isinstance(node, libcst.Call) and self._is_pure_call(node)

    def _is_pure_call(self, call: libcst.Call) -> bool:
        if self.torch_function(call) not in PURE | FINITE_AT_ONE:
            return False
        if any(argument.star for argument in call.args):
            return False
        parts = [argument.value for argument in call.args]
        if self.is_method(call):
            assert isinstance(call.func, libcst.Attribute), "a method"
            parts.append(call.func.value)
        return all(map(self._is_pure, parts))


def scope_of(source: Source) -> Scope:
    """The scope of a file. A name that is imported twice has no meaning there."""
    found: dict[str, set[str]] = {}
    for name, full in _imported(source):
        found.setdefault(name, set()).add(full)
    return Scope(source, {name: full.pop() for name, full in found.items() if len(full) == 1})


def _imported(source: Source) -> Iterator[tuple[str, str]]:
    for statement in source.below(source.module, libcst.Import):
        for alias in statement.names:
            full = alias.evaluated_name
            short = alias.evaluated_alias
            root = full.partition(".")[0]
            yield (short, full) if short else (root, root)
    for statement in source.below(source.module, libcst.ImportFrom):
        module = dotted(statement.module) if statement.module else ""
        if not module or statement.relative or isinstance(statement.names, libcst.ImportStar):
            continue
        for alias in statement.names:
            full = f"{module}.{alias.evaluated_name}"
            yield alias.evaluated_alias or alias.evaluated_name, full


def is_number(node: libcst.CSTNode) -> bool:
    """Whether it is a number of the text, with or without a sign."""
    if isinstance(node, libcst.UnaryOperation):
        return is_number(node.expression)
    return isinstance(node, (libcst.Integer, libcst.Float))


def _is_arithmetic(node: libcst.BinaryOperation) -> bool:
    if isinstance(node.operator, (libcst.FloorDivide, libcst.Modulo)):
        return is_nonzero_number(node.right)  # integers raise for 0
    return isinstance(node.operator, _ARITHMETIC)


def is_nonzero_number(node: libcst.CSTNode) -> bool:
    """Whether it is a number of the text other than 0."""
    return isinstance(node, (libcst.Integer, libcst.Float)) and node.evaluated_value != 0


def _is_constant_index(element: libcst.SubscriptElement) -> bool:
    index = element.slice
    if isinstance(index, libcst.Slice):
        bounds = [each for each in (index.lower, index.upper, index.step) if each is not None]
        return all(map(is_number, bounds))
    assert isinstance(index, libcst.Index), "the other kind"
    value = index.value
    empty = isinstance(value, libcst.Name) and value.value == "None"
    return empty or isinstance(value, libcst.Ellipsis) or is_number(value)
