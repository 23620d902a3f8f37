"""Whether a tensor may still be held when the code that made it runs again: by a list, an
attribute, a view of it. Followed through variables, returns and functions of the file; what cannot
be followed may keep it."""

from __future__ import annotations

import libcst

from compilediag.fixes.codemods.contexts import is_compile
from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.codemods.names import bound_in, uses_of
from compilediag.fixes.codemods.purity import FRESH, PURE, Scope, code_of, words

_SHARING = words(
    """view view_as reshape reshape_as flatten unflatten squeeze unsqueeze transpose swapaxes
    swapdims permute movedim moveaxis t adjoint expand expand_as broadcast_to narrow select unbind
    split chunk tensor_split unfold diagonal detach contiguous to type type_as float half double
    bfloat16 long int bool cuda cpu real imag view_as_real view_as_complex T mT H mH data"""
)
"""Functions of torch, methods and attributes of tensors whose result may share their memory."""

_OUT_OF_SIGHT = words(
    """untyped_storage storage numpy as_strided requires_grad_ register_hook set_
    share_memory_ pin_memory apply_ map_ from_dlpack to_dlpack asarray as_tensor"""
)
"""Those after which its memory is used where no text shows it, or must not be written."""

_IN_PLACE = words("add_ sub_ mul_ div_ copy_ index_copy_ index_add_ add div")
"""Methods of tensors, and not of containers, besides the pure ones."""

_READING = words("len print float int str repr type isinstance range sum min max abs round")

_STORES_NOTHING = (
    libcst.AssignTarget,
    libcst.Param,
    libcst.AugAssign,
    libcst.Expr,
    libcst.BinaryOperation,
    libcst.UnaryOperation,
    libcst.Comparison,
    libcst.ComparisonTarget,
    libcst.FormattedStringExpression,
    libcst.Index,
    libcst.If,
    libcst.While,
    libcst.Assert,
)
"""What a tensor may stand in without being kept there."""

_JOINS = (libcst.AugAssign, libcst.BinaryOperation)
"""Of containers, those that have what is in them."""


def require_not_kept(scope: Scope, whole: libcst.CSTNode, name: str) -> None:
    """Raises EditImpossible where the tensor of a variable of a function, or of the module, may be
    held when the variable gets another one."""
    _Kept(scope).require_of_variable(whole, name)


def only_call(scope: Scope, function: libcst.FunctionDef) -> libcst.Call:
    """The call of a function that the file calls at one place, and uses nowhere else.

    Raises:
        EditImpossible: there is no such call.
    """
    source, name = scope.source, function.name.value
    found = [
        each
        for each in source.below(source.module, libcst.Name)
        if each.value == name and each is not function.name
    ]
    node: libcst.CSTNode = found[0] if len(found) == 1 else source.module
    parent = source.parent(node)
    if isinstance(parent, libcst.Attribute) and parent.attr is node:
        node, parent = parent, source.parent(parent)
    if not isinstance(parent, libcst.Call) or parent.func is not node:
        raise EditImpossible(f"`{name}` is not called at one place of the file")
    return parent


class _Kept:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._source = scope.source
        self._seen: set[tuple[libcst.CSTNode, str, bool]] = set()

    def require_of_variable(self, whole: libcst.CSTNode, name: str, *, boxed: bool = False) -> None:
        """`boxed`: it is, or may be, a container with the tensor in it."""
        if (whole, name, boxed) in self._seen:
            return
        self._seen.add((whole, name, boxed))
        for use in uses_of(self._source, whole, name):
            if self._whole_of(use) is not whole:
                raise EditImpossible(f"`{name}` is a variable of more than one function")
            self._require(use, boxed)

    def _whole_of(self, node: libcst.CSTNode) -> libcst.CSTNode:
        kinds = (libcst.FunctionDef, libcst.Lambda)
        around = self._source.around(node, libcst.CSTNode)
        return next((each for each in around if isinstance(each, kinds)), self._source.module)

    def _require(self, node: libcst.CSTNode, boxed: bool) -> None:
        """Of an expression that has its memory."""
        parent = self._source.parent(node)
        if isinstance(parent, _STORES_NOTHING) and not (boxed and isinstance(parent, _JOINS)):
            return
        if isinstance(parent, (libcst.Subscript, libcst.IfExp)):
            self._require(parent, boxed)
        elif isinstance(parent, (libcst.Element, libcst.DictElement)):
            self._require(self._source.parent(parent), True)
        elif isinstance(parent, libcst.Attribute) and not boxed:
            self._require_attribute(parent)
        elif isinstance(parent, libcst.Arg):
            self._require_passed(parent, boxed)
        elif isinstance(parent, libcst.Assign):
            for target in parent.targets:
                self._require_target(target.target, boxed)
        elif isinstance(parent, libcst.For):
            if parent.iter is node:
                self._require_target(parent.target, boxed)
        elif isinstance(parent, libcst.Return) and isinstance(
            function := self._whole_of(node), libcst.FunctionDef
        ):
            self._require(only_call(self._scope, function), boxed)
        else:
            raise _may_keep(parent)

    def _require_target(self, target: libcst.BaseExpression, boxed: bool) -> None:
        if isinstance(target, (libcst.Tuple, libcst.List)):
            for element in target.elements:
                self._require_target(element.value, False)
        elif isinstance(target, libcst.Name):
            self.require_of_variable(self._whole_of(target), target.value, boxed=boxed)
        else:
            raise _may_keep(target)

    def _require_attribute(self, node: libcst.Attribute) -> None:
        name, call = node.attr.value, self._source.parent(node)
        called = call if isinstance(call, libcst.Call) and call.func is node else None
        if name in _OUT_OF_SIGHT or (called is not None and _is_asynchronous(called)):
            raise _may_keep(called or node)
        if name in _SHARING or (called is not None and name.endswith("_")):
            self._require(called or node, False)

    def _require_passed(self, argument: libcst.Arg, boxed: bool) -> None:
        call = self._source.parent(argument)
        assert isinstance(call, libcst.Call), "base classes are not tensors"
        full = self._scope.imported_name(call.func) or ""
        name = full.rpartition(".")[2]
        if full.startswith("torch.") and name.islower() and name not in _OUT_OF_SIGHT:
            if name in _SHARING:
                self._require(call, boxed)
        elif not self._is_known(call):
            self._require_parameter(call, argument, boxed)

    def _is_known(self, call: libcst.Call) -> bool:
        """Whether it is compiled, a module of torch, a method of a tensor, or a built-in that
        reads."""
        function = call.func
        if isinstance(function, libcst.Attribute):
            method = function.attr.value in PURE | FRESH | _IN_PLACE
            return method and self._scope.imported_name(function) is None
        if not isinstance(function, libcst.Name):
            return False
        made = [
            each.value
            for each in self._source.below(self._source.module, libcst.Assign)
            for target in each.targets
            if code_of(target.target) == function.value
        ]
        if not made:
            return function.value in _READING
        full = self._scope.imported_name(made[0].func) if isinstance(made[0], libcst.Call) else None
        return len(made) == 1 and (full or "").startswith(("torch.compile", "torch.nn."))

    def _require_parameter(self, call: libcst.Call, argument: libcst.Arg, boxed: bool) -> None:
        """Of what a function of the file does with it."""
        made = self._definition(call.func)
        if made is None:
            raise _may_keep(call.func)
        if is_compile(self._scope, made):
            return
        listed = [each.name.value for each in (*made.params.posonly_params, *made.params.params)]
        at = list(call.args).index(argument)
        by_place = listed[at] if at < len(listed) else ""
        name = argument.keyword.value if argument.keyword is not None else by_place
        if made.decorators or not name or any(each.star for each in call.args):
            raise _may_keep(call.func)
        self.require_of_variable(made, name, boxed=boxed)

    def _definition(self, function: libcst.BaseExpression) -> libcst.FunctionDef | None:
        source = self._source
        found = [
            each
            for each in source.below(source.module, libcst.FunctionDef)
            if each.name.value == code_of(function) and source.parent(each) is source.module
        ]
        bound = list(bound_in(source, source.module)).count(code_of(function))
        return found[0] if len(found) == bound == 1 else None


def _is_asynchronous(call: libcst.Call) -> bool:
    """Whether a copy may go on after it, and read what is written then."""
    return any(
        each.keyword is not None and each.keyword.value == "non_blocking" for each in call.args
    )


def _may_keep(node: libcst.CSTNode) -> EditImpossible:
    text = code_of(node).strip().partition("\n")[0]
    return EditImpossible(f"`{text}` may keep the tensor")
