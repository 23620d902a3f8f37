"""Patterns that are compiled late are patterns to whoever uses them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import compilediag
from compilediag_harness import late_patterns
from compilediag_harness.late_patterns import late


def test_it_does_what_the_pattern_does() -> None:
    """All methods and attributes, with flags, of text and of bytes."""
    pattern = late(r"(?P<word>a+)b", re.IGNORECASE)
    same = re.compile(r"(?P<word>a+)b", re.IGNORECASE)
    for one in (pattern, same):
        found = one.search("xAAb")
        assert found is not None
        assert (found["word"], found.span()) == ("AA", (1, 4))
        assert one.sub("-", "ab aab") == "- -"
        assert one.findall("ab aab") == ["a", "aa"]
        assert (one.pattern, one.flags, one.groups) == (same.pattern, same.flags, 1)
    assert late(rb"\d").match(b"1") is not None


def test_it_is_compiled_once_and_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong expression is noticed when it is used; what was compiled stays."""
    wrong = late("(")
    with pytest.raises(re.error):
        wrong.match("")
    pattern: Any = late("a")
    bound = pattern.match
    monkeypatch.setattr(late_patterns.re, "compile", None)
    assert pattern.match == bound
    assert pattern.search("ba") is not None
    with pytest.raises(AttributeError):
        _ = pattern.nothing


def test_every_late_pattern_is_one() -> None:
    """No wrong expression waits for the run that needs it."""
    root = Path(compilediag.__file__).parent
    compiled = 0
    for path in root.rglob("*.py"):
        if "import late\n" in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
            for item in vars(importlib.import_module(name)).values():
                if type(item) is type(late("")):
                    assert isinstance(item.pattern, (str, bytes))
                    compiled += 1
    assert compiled > 40
