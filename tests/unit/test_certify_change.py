"""Which lines of a change can run."""

import hashlib

import pytest

from compilediag.certify.change import Change, compare_sources

OLD = '''"""Docs."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import os
SIZES = (
    1,
    2,
)


def f(x: int, flag=False):
    """Says what."""
    # a comment
    if flag:
        x = x + 1
        x = x + 2
    text = """
    # no comment
    """
    return x


class C:
    value: int = 3
'''


def compare(new: str, old: str = OLD) -> Change:
    return compare_sources({"/p/a.py": old.encode()}, {"/p/a.py": new.encode()})


def find_lines(new: str, old: str = OLD) -> list[str]:
    """The text of the lines that the change asks for."""
    lines = new.splitlines()
    return [lines[line - 1].strip() for file in compare(new, old).files for line in file.lines]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("x + 1", "x + 3", ["x = x + 3"]),
        ("Says what", "Says more", []),
        ("# a comment", "# another", []),
        ("import os", "import sys", []),
        ("# no comment", "# other text", ['text = """']),
        ("    2,", "    3,", ["SIZES = ("]),
        ("flag=False", "flag=True", ["def f(x: int, flag=True):"]),
        ("if flag", "if not flag", ["if not flag:"]),
        ("value: int = 3", "value: int = 4", ["value: int = 4"]),
        ("    return x\n", "    return x\n\n\ndef g():\n    return 1\n", ["def g():", "return 1"]),
        ("if flag:", "if flag:  # why", []),
    ],
)
def test_only_what_can_run_is_asked_for(old: str, new: str, lines: list[str]) -> None:
    assert OLD.replace(old, new) != OLD
    assert find_lines(OLD.replace(old, new)) == lines


@pytest.mark.parametrize(
    ("removed", "beside"),
    [
        ("        x = x + 2\n", ["x = x + 1"]),
        ("        x = x + 1\n        x = x + 2\n    text", None),
        ("    return x\n", ['text = """']),
        ("    # a comment\n", None),
    ],
)
def test_of_what_was_only_removed_the_same_block_has_to_run(
    removed: str, beside: list[str] | None
) -> None:
    new = OLD.replace(removed, "    text" if removed.endswith("text") else "")
    new = new.replace("    if flag:\n    text", "    text")
    lines = new.splitlines()
    found = [[lines[n - 1].strip() for n in near] for f in compare(new).files for near in f.removed]
    if beside is None and "comment" in removed:
        assert found == []
    elif beside is not None:
        assert found == [beside]
    else:
        assert found
        assert all('text = """' in near for near in found)


BRANCHES = """\
def f(x):
    y = 0
    if x > 2:
        y = 1
    elif x > 1:
        # a comment
        y = 2
        y += 1
    else:
        y = 3
    for _ in range(x):
        y += 4
    if x > 5:
        y = 5
    if x > 9:
        raise ValueError(
            x)
    try:
        y += 5
    except TypeError:
        y = 6
    with x:
        y += 7
    return y
"""


@pytest.mark.parametrize(
    ("old", "new", "branches"),
    [
        ("x > 2", "x > 3", ["y = 1", "elif x > 1:"]),
        ("x > 1", "x > 0", ["y = 2", "y = 3"]),
        (
            "    elif x > 1:\n        # a comment\n        y = 2\n        y += 1\n",
            "",
            ["y = 2", "y = 3"],
        ),
        (
            "        y = 2\n        y += 1\n    else:\n        y = 3\n",
            "        y = 3\n",
            ["y = 2", "y = 3"],
        ),
        ("        y = 2\n", "        y = 8\n", []),
        ("range(x)", "range(2 * x)", ["y += 4"]),
        ("x > 5", "x > 6", ["past if x > 5:", "y = 5"]),
        ("    if x > 5:\n        y = 5\n", "    y = 5\n", ["past if x > 5:", "y = 5"]),
        ("        y = 5\n", "        y = 6\n", []),
        ("x > 9", "x > 8", []),
        ("TypeError", "ValueError", []),
        ("with x", "with y", []),
        ("y = 1", "y = 8", []),
    ],
)
def test_branches_whose_condition_is_gone_or_another_have_to_have_run(
    old: str, new: str, branches: list[str]
) -> None:
    """Not checks that never failed, and what handles an error; an `if` alone has a way past it."""
    (file,) = compare(BRANCHES.replace(old, new, 1), BRANCHES).files
    lines = BRANCHES.splitlines()
    shown = ["past " * (n < 0) + lines[abs(n) - 1].strip() for _, n in file.branches]
    assert shown == branches
    assert {entry for entry, _ in file.branches} <= {2}


def test_attributes_that_are_counted_no_more() -> None:
    """Not those that are written, as the size of a buffer that grew."""
    old = "class C:\n    def f(self, x):\n        self.a += 1\n        self.b = x\n"
    assert compare(old.replace("self.a += 1", "pass"), old).files[0].uncounted == {"a"}
    assert compare(old.replace("self.b = x", "pass"), old).files[0].uncounted == set()
    for kept in ("self.a = self.a + 1", "self.a = max(x, 2 * self.a)", "self.a.add_(1)"):
        assert compare(old.replace("self.a += 1", kept), old).files[0].uncounted == set()


def test_other_ends_of_lines_are_no_change() -> None:
    old = "def f(x):\r\n    y = x\r\n    return y\r\n"
    (file,) = compare(old.replace("\r", "").replace("y = x", "y = x + 1"), old).files
    assert file.lines == (2,)


def test_sizes_that_are_read_no_more() -> None:
    """Not those that another line reads now."""
    old = "def f(x):\n    y = x * x.size(0)\n    return y.shape\n"
    (file,) = compare(old.replace("    y = x * x.size(0)", "    y = x"), old).files
    assert file.sizes == (2,)
    (file,) = compare(old.replace("x * x.size(0)", "x * x.shape[0]"), old).files
    assert file.sizes == ()


def test_an_else_that_is_gone_was_a_part_of_its_if() -> None:
    old = "def f(x):\n    if x:\n        a = 1\n    else:\n        a = 2\n    return a\n"
    new = "def f(x):\n    if x:\n        a = 1\n    return a\n"
    assert compare(new, old).files[0].removed == ((2, 4),)


@pytest.mark.parametrize(
    "condition", ["not TYPE_CHECKING", "TYPE_CHECKING or x", "NO_TYPE_CHECKING"]
)
def test_only_what_is_for_type_checkers_never_runs(condition: str) -> None:
    old = OLD.replace("if TYPE_CHECKING", f"if {condition}")
    assert find_lines(old.replace("import os", "import sys"), old) == ["import sys"]


def test_states_are_known_by_digests() -> None:
    change = compare_sources({"/p/a.py": b"1\n", "/p/b.py": b""}, {"/p/a.py": b"2\n"})
    assert change.before == {
        "/p/a.py": hashlib.sha256(b"1\n").hexdigest(),
        "/p/b.py": hashlib.sha256(b"").hexdigest(),
    }
    assert list(change.after) == ["/p/a.py"]


def test_a_new_file_runs_as_a_whole() -> None:
    change = compare_sources({}, {"/p/a.py": b"import os\n\nX = 1\n"})
    assert change.files[0].lines == (1, 3)
    assert change.watched[0].lines == (1, 3)


def test_a_file_that_is_no_python_is_asked_for_as_a_whole() -> None:
    assert compare("def f(:\n").files[0].lines == (1, 2)
