"""An argument that a call passes by name is added to it."""

import pytest

from compilediag.fixes.edits.rewrite import rewrite
from compilediag.rules.changes import Edit, EditImpossible

pytest.importorskip("libcst")

TEXT = "for x in xs:\n    y = model(  # once\n        x,\n    )\n"


def test_a_keyword_is_added_to_the_call() -> None:
    made = rewrite(TEXT, [Edit("f.py", 2, "keyword", ("model(x)", "mask", "ones(2)"))])
    assert made == "for x in xs:\n    y = model(  # once\n        x,\n    mask=ones(2))\n"
    with pytest.raises(EditImpossible, match="passes mask already"):
        rewrite("model(mask=m)\n", [Edit("f.py", 1, "keyword", ("model(mask=m)", "mask", "1"))])
    with pytest.raises(EditImpossible, match="has no call"):
        rewrite(TEXT, [Edit("f.py", 2, "keyword", ("model(y)", "mask", "1"))])
