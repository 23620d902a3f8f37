"""Paths in a receipt: short below the working directory, untouched elsewhere."""

from typing import Any

import msgspec
import pytest

from compilediag.receipt.sanitize import ABOUT_CODE, sanitize
from compilediag.receipt.schema.receipt import Receipt
from compilediag_harness.redaction.redactor import Redactor
from tests.support.built_receipt import built


def short(value: Any, *directories: str) -> Any:
    """A value as it is written by processes that started in these directories."""
    return sanitize(value, Redactor(), directories)[0]


@pytest.mark.parametrize(
    ("directories", "value", "expected"),
    [
        (["/home/me/p"], "/home/me/p/model.py", "model.py"),
        (["/home/me/p"], "/home/me/p/src/a b.py", "src/a b.py"),
        (["/home/me/p"], "/home/me/p2/model.py", "/home/me/p2/model.py"),
        (["/home/me/p"], "/home/me/model.py", "/home/me/model.py"),
        (["/home/me/p"], "model.py", "model.py"),
        (["/home/me/p"], "<string>", "<string>"),
        (["/p", "/p/sub"], "/p/sub/x.py", "x.py"),
        (["/p", "/p/sub"], "/p/y.py", "y.py"),
        ([], "at /x.py", "at /x.py"),
        (["/"], "at /x.py", "at /x.py"),
        ([""], "at /x.py", "at /x.py"),
        (["/p"], {"a": ["at /p/x.py:3 and (/p/y.py)", 5]}, {"a": ["at x.py:3 and (y.py)", 5]}),
        (["/p"], "/q/p/x.py /p/z.py ./p/x.py", "/q/p/x.py z.py ./p/x.py"),
    ],
)
def test_short(directories: list[str], value: Any, expected: Any) -> None:
    """Only what lies below a folder loses it, the longest that fits; a folder with a longer name is
    another. Run from the root, or with no process known, paths stay whole, as do those that only
    end like one."""
    assert short(value, *directories) == expected


def test_sections() -> None:
    """Of a whole receipt, what is about code; what is about this run names whole paths."""
    assert ABOUT_CODE <= {*Receipt.__struct_fields__}
    receipt = built()
    texts = {"about": "/p/x.py"}
    finding = msgspec.structs.replace(receipt.findings[0], evidence=texts)
    found = short(msgspec.structs.replace(receipt, findings=(finding,), extensions=texts), "/p")
    assert found.findings[0].evidence == {"about": "x.py"}
    assert found.extensions == {"about": "/p/x.py"}
