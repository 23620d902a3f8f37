"""Ownership of a source file: the user's own, a third party's, or torch's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from compilediag_harness.base.generated_files import is_generated, is_inductor_code

Ownership = Literal["user", "third_party", "torch"]

_INSTALLED = re.compile(r"(?:^|/)(?:site|dist)-packages/")
_STDLIB = re.compile(r"(?:^|/)(?:lib(?:64)?/python3(?:\.\d{1,3}t?)?|python3\d{0,3}\.zip)/")
_OURS = re.compile(r"(?:^|/)compilediag_harness/")
_TORCH_PACKAGES = frozenset({"torch", "torchgen", "functorch"})

# Folders and files that no package but torch is known to have: they mark torch's own files in a
# source checkout ("…/torch/_dynamo/…"), and in the paths that torch shortens from the left by
# what they share with its own folder ("nn/modules/module.py").
_TORCH_TAIL = (
    r"(?:_(?:dynamo|inductor|functorch|higher_order_ops|subclasses|export|library|prims|refs"
    r"|decomp|dispatch|logging|guards\.py|tensor\.py|ops\.py|compile\.py)"
    r"|nn/(?:modules|functional\.py|parallel|utils|attention)"
    r"|optim/(?:optimizer|lr_scheduler|swa_utils|adam|adamw|sgd|_functional|_multi_tensor)\b"
    r"|autograd/(?:function|graph|grad_mode|profiler)\.py"
    r"|fx/(?:experimental|passes|proxy\.py|graph_module\.py|interpreter\.py)"
    r"|utils/(?:_pytree\.py|_python_dispatch\.py|_contextlib\.py|checkpoint\.py|_device\.py)"
    r"|compiler/__init__\.py|distributed/(?:fsdp|tensor|_composable)/)(?:/|$|\.|\b)"
)


def classify_ownership(file: str, user_roots: Sequence[str] = ()) -> Ownership:
    """Classify who owns `file`, a path as torch or Python prints it.

    torch's own files are "torch"; installed packages, the standard library and our own half in the
    program are "third_party"; everything else is "user", also a file outside `user_roots`, because
    a project is often run from elsewhere. A virtual environment inside the user's folder stays
    third party. A path that torch shortened from the left is completed against `user_roots` where
    it can be.
    """
    return _classify_file(file, tuple(user_roots))


@lru_cache(maxsize=4096)
def _classify_file(file: str, roots: tuple[str, ...]) -> Ownership:
    file = file.replace("\\", "/")
    roots = tuple(root.replace("\\", "/") for root in roots)
    if file.startswith("<"):
        # Code that has no file: torch.fx graphs, frozen modules, generated classes, typed code.
        if file.startswith(("<eval_with_key>", "<torch_package")):
            return "torch"
        foreign = ("<frozen ", "<attrs ", "<__array_function__", "<decorator-gen")
        return "third_party" if file.startswith(foreign) else "user"
    if is_inductor_code(file):
        return "torch"
    installed = find_installed(file)
    if installed is not None:
        return _classify_installed(file, installed, roots)
    if _STDLIB.search(file) or _OURS.search(file) or is_generated(file):
        return "third_party"
    return "torch" if _belongs_to_torch_source(file, roots) else "user"


def find_installed(file: str) -> int | None:
    """Find where the part of a path in site-packages begins; None for a file elsewhere."""
    return max((matched.end() for matched in _INSTALLED.finditer(file)), default=None)


def _classify_installed(file: str, packages: int, roots: tuple[str, ...]) -> Ownership:
    """Classify a file in site-packages: the first folder from `packages` on names the package."""
    package = file[packages:].partition("/")[0].removesuffix(".py")
    if package in _TORCH_PACKAGES:
        return "torch"
    # A user may develop inside site-packages; the folder site-packages itself is no project.
    developed = any(
        len(root) > packages and f"{file}/".startswith(f"{root.rstrip('/')}/") for root in roots
    )
    return "user" if developed else "third_party"


def _belongs_to_torch_source(file: str, roots: tuple[str, ...]) -> bool:
    if file.startswith("/"):
        head, separator, tail = file.rpartition("/torch/")
        return bool(separator) and bool(head) and re.match(_TORCH_TAIL, tail) is not None
    if re.match(_TORCH_TAIL, file.removeprefix("torch/")) is None:
        return False
    # A shortened path begins with the last folders of a root: "b/app.py" below ".../a/b".
    folders = file.split("/")[:-1]
    return not any(
        root.rstrip("/").endswith("/" + "/".join(folders[:count]))
        for root in roots
        for count in range(1, len(folders) + 1)
    )
