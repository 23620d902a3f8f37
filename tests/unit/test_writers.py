"""Who writes a guarded variable, found without executing anything of the user's."""

import gc
import importlib.util
import math
import sys
import weakref

import torch

from compilediag_harness.blame import writers, writes_in_source
from compilediag_harness.blame.value_uses import find_decided_branch, find_uses
from compilediag_harness.blame.writers import ReachableNames
from compilediag_harness.wire import Location

COMPILED = writers.CompiledCode(
    ReachableNames.may_run.__code__, {"L": {}, "G": {}}, (), ReachableNames()
)
"""A compiled function that has nothing to do with it."""


def make_flag():
    """A flag that one function reads and another rebinds."""
    flag = False

    def read():
        return flag

    def set_flag(value):
        nonlocal flag
        flag = value

    return read, set_flag


def make_stash():
    """A dict that its closures read and fill."""
    stash = {}
    other = {}

    def read():
        if "x" in stash:
            other["y"] = 1
        return stash

    def fill():
        stash["x"] = 1

    return read, fill, stash


def cell_of(function, name):
    """The closure cell of a free variable."""
    return function.__closure__[function.__code__.co_freevars.index(name)]


def test_the_function_that_rebinds_a_cell_is_its_writer():
    """Exact: the one with `nonlocal` and a store, not the reader."""
    read, set_flag = make_flag()
    found = writers.find_cell_writers(cell_of(read, "flag"), read.__code__)
    assert [place.function for place in found] == ["make_flag.<locals>.set_flag"]
    assert found[0].line == set_flag.__code__.co_firstlineno + 2


def test_a_call_in_progress_that_fills_the_container_is_found():
    """The training loop itself writes: it holds the same dict under its own name."""
    read, _, shared = make_stash()
    shared["entropy"] = 0
    found = writers.find_cell_writers(cell_of(read, "stash"), read.__code__)
    here = "test_a_call_in_progress_that_fills_the_container_is_found"
    assert found[0].function == here


class Holder:
    """An object with a flag that a method and outside code set."""

    def __init__(self):
        self.flag = False

    def enable(self):
        """Sets the flag."""
        self.flag = True


def test_attribute_writers_are_methods_and_calls_in_progress_but_not_the_constructor():
    """`__init__` ran before the value changed: it is never the writer."""
    holder = Holder()
    other = Holder()
    holder.flag = True
    names = [place.function for place in writers.find_attribute_writers(holder, "flag", COMPILED)]
    here = "test_attribute_writers_are_methods_and_calls_in_progress_but_not_the_constructor"
    assert names == [here, "Holder.enable"]
    (found,) = writers.find_attribute_writers(other, "flag", COMPILED)
    assert found.function == "Holder.enable"


class Regridded(torch.nn.Module):
    """Its parameter stays, and gets other memory."""

    def __init__(self):
        super().__init__()
        self.coef = torch.nn.Parameter(torch.zeros(2, 3))

    def regrid(self, value):
        """Writes."""
        self.coef.data = value


def test_what_replaces_the_memory_of_a_tensor_is_a_writer():
    """`coef.data = …`, which gives it other strides or another dtype (KAN's update of its grid);
    what writes into the memory that is there is none."""
    holder, other = Regridded(), Regridded()
    holder.coef.data = torch.zeros(3, 2).T
    other.coef.data.zero_()
    names = [place.function for place in writers.find_attribute_writers(holder, "coef", COMPILED)]
    here = "test_what_replaces_the_memory_of_a_tensor_is_a_writer"
    assert names == [here, "Regridded.regrid"]
    (found,) = writers.find_attribute_writers(other, "coef", COMPILED)
    assert found.function == "Regridded.regrid"


def undisclosed(function):
    """A decorator that hides what it wraps."""

    def call(*args):
        return function(*args)

    return call


class Decorated:
    """Its only write stands behind a decorator."""

    def __init__(self):
        self.cached = 0

    @undisclosed
    def grow(self):
        """Writes."""
        self.cached = 8


def test_a_write_behind_a_decorator_is_found():
    """As in a library whose forward is wrapped by torch.autocast."""
    found = writers.find_attribute_writers(Decorated(), "cached", COMPILED)
    assert [place.function for place in found] == ["Decorated.grow"]


def test_looking_at_running_calls_keeps_no_local_alive():
    """Up to Python 3.12 `frame.f_locals` leaves a snapshot at the frame."""
    read, _, _shared = make_stash()
    local = Holder()
    alive = weakref.ref(local)
    writers.find_cell_writers(cell_of(read, "stash"), read.__code__)
    del local
    gc.collect()
    assert alive() is None


def test_code_without_source_has_no_known_writers():
    """No guess from byte code alone: exec'd text has no file to read."""
    namespace: dict = {}
    exec("def fill(stash):\n    stash['x'] = 1\n", namespace)
    assert writes_in_source.find_mutation_line(namespace["fill"].__code__, "stash") is None


def test_a_nested_functions_write_is_not_the_outer_functions():
    """`make_stash` contains `fill`, but only `fill` writes."""
    assert writes_in_source.find_mutation_line(make_stash.__code__, "stash") is None


def deciding(x, level, limit):
    y = scaled(x, level)
    if limit > level * 2 and limit is not None:
        return y.clamp(max=level)
    root = math.sqrt(1 - 0.9**limit)
    return torch.add(x, y, alpha=level) * root


def selecting(x, margin, place):
    far = x > margin
    return x[far], x[place]


def scaled(given, amount):
    return given * amount


def stepping(x, state):
    state["step"] += 1
    return bounded(torch.dropout(x, state["step"], False), state) * math.exp(state["step"])


def bounded(x, state):
    return x * min(state["step"], 5) * max(state["step"], x.numel())


def test_uses_of_an_item_are_found_where_its_holder_is_passed():
    """By functions of the same file; `min` with a number is computed on symbols, with a value that
    is not written there it is a condition."""
    at = Location(__file__, stepping.__code__.co_firstlineno + 1, "stepping")
    uses = find_uses([(at, {"math": math, "torch": torch})], "['step']")
    assert {(use.kind, use.callee) for use in uses} == {
        *(("bound", "min"), ("condition", "max"), ("math", "math.exp")),
        ("float", "torch.dropout"),
    }


def test_uses_of_a_value_are_followed():
    """Into functions and variables, to the schemas of torch's operators, by what is called."""
    at = Location(__file__, deciding.__code__.co_firstlineno + 1, "deciding")
    names = {"math": math, "torch": torch, "scaled": scaled}
    uses = find_uses([(at, names)], "level")
    assert {(use.kind, use.callee) for use in uses} == {
        *(("arithmetic", ""), ("condition", "")),
        *(("operand", "y.clamp"), ("scalar", "torch.add")),
    }
    kinds = {use.kind for use in find_uses([(at, names)], "limit")}
    assert kinds == {"arithmetic", "condition", "symbolic_math"}
    assert find_uses([(Location("/nowhere.py", 1, ""), {})], "level") is None


def test_a_mask_that_a_number_was_compared_for_is_no_index():
    at = Location(__file__, selecting.__code__.co_firstlineno + 1, "selecting")
    kinds = {
        name: {use.kind for use in find_uses([(at, {})], name)} for name in ("margin", "place")
    }
    assert kinds == {"margin": {"arithmetic"}, "place": {"index"}}


def reading(self, x, flag):
    if self.initialized.item() == 0:
        x = x + 1
    step = int(self.step.item())
    if flag and step <= self.start:
        return x
    for _ in range(max(x.sum().item(), 1)):
        x = x * 2
    first = x.max().item()
    assert first < 9
    reused = x.min().item()
    reused = reused + 1 if flag else 0
    while reused < 3:
        reused = 4
    return x * self.scale.item() + (2 if bool(self.other) else first) + int(x.any())


def test_a_branch_that_a_number_of_a_tensor_decides_is_found():
    """Itself or by the variable that holds it and nothing else; an assert decides no branch that
    breaks the graph, and a line that reads other numbers too none for certain."""
    begin = reading.__code__.co_firstlineno
    found = [find_decided_branch(__file__, begin + at) for at in range(16)]
    assert {at: (it.text, it.line - begin) for at, it in enumerate(found) if it is not None} == {
        1: ("self.initialized", 1),
        3: ("self.step", 4),
        6: ("x.sum()", 6),
    }
    assert find_decided_branch("/nowhere.py", 3) is None


LIBRARY = """
class Base:
    mode = None

    def _restore_saved_mode(self):
        self.mode = 1

    def _helper(self):
        self.mode = 2

    def start_library_mode(self):
        self._helper()

    def fill_missing_mode(self, x):
        if self.mode is None:
            self.mode = 3
        return x
"""


def library(folder):
    """A module of an installed package."""
    package = folder / "site-packages" / "written_by_others"
    package.mkdir(parents=True)
    file = package / "base.py"
    file.write_text(LIBRARY, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("written_by_others.base", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_method_of_a_package_that_no_name_leads_to_is_no_writer(tmp_path, monkeypatch):
    """The program's own code starts a mode, which calls the helper; nothing loads or reads."""
    module = library(tmp_path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    holder = module.Base()
    holder.start_library_mode()
    found = writers.find_attribute_writers(holder, "mode", COMPILED)
    assert [place.function for place in found] == ["Base._helper"]


def test_a_function_that_assigns_what_its_line_reads(tmp_path):
    """Of the very expression only: another object, or a name bound again, is none."""
    file = str(tmp_path / "filling.py")
    with open(file, "w", encoding="utf-8") as out:
        out.write(LIBRARY)
        out.write("def other(a, b):\n    if a.mode is None:\n        b.mode = 1\n")
        out.write("def moved(a):\n    if a.mode is None:\n        a = 1\n        a.mode = 1\n")
    line = LIBRARY.splitlines().index("        if self.mode is None:") + 1
    assert writes_in_source.find_store_beside_read(file, line, "mode") == line + 1
    end = len(LIBRARY.splitlines())
    assert writes_in_source.find_store_beside_read(file, end + 2, "mode") is None
    assert writes_in_source.find_store_beside_read(file, end + 5, "mode") is None


def test_a_gradient_is_not_written_by_a_method_of_tensors():
    """`Tensor.__deepcopy__` sets that of a copy, and ran for none that is guarded."""
    assert writers.find_attribute_writers(torch.ones(2), "grad", COMPILED) == ()
