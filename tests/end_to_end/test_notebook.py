"""`%%compilediag` in a real kernel, and docs/howto/html_report.md followed literally."""

import re
from pathlib import Path
from typing import Any

import pytest

nbformat: Any = pytest.importorskip("nbformat")
nbclient: Any = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "html_report.md"

CELLS = {
    "value": (
        "%%compilediag --configuration cell --save run.json\n"
        "out = scaled(torch.ones(2), 7)\nout.sum()"
    ),
    "names": "print(float(out.sum()), _compilediag.receipt.header.configuration.name)",
    "former": "%%compilediag --lane former\nout = scaled(torch.ones(2), 7)",
    "former name": "print(_compilediag.receipt.header.configuration.name)",
    "again": "%%compilediag\nfor factor in (1, 2, 3):\n    out = scaled(torch.ones(2), factor)",
    "reset": "%%compilediag\ntorch.compiler.reset()\nout = scaled(torch.ones(2), 5)",
    "error": "%%compilediag\n\n\ndef fails():\n    raise KeyError('it')\nfails()",
    "own": (
        "%%compilediag --quiet\n\n@torch.compile(backend='eager')\ndef other(x, flag):\n"
        "    return x + 1 if flag else x - 1\nother(torch.ones(2), True)\n"
        "other(torch.ones(2), False);"
    ),
    "lines": "found = _compilediag.findings[0]\nprint(found.variable, found.location.line)",
    "shown": "_compilediag",
    "option": "%%compilediag --nonsense\n1",
    "help": "%%compilediag --help\n1",
    "left": (
        "from torch._dynamo import callback, config\n"
        "%unload_ext compilediag\n"
        "print('compilediag' in get_ipython().magics_manager.magics['cell'])"
    ),
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The page's cells and those of above, run in one kernel, by name."""
    folder = tmp_path_factory.mktemp("notebook")
    page = PAGE.read_text(encoding="utf-8")
    texts = re.findall(r"^```python cell_\d\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    sources = {**{f"page {n}": text for n, text in enumerate(texts, 1)}, **CELLS}
    made = [nbformat.v4.new_code_cell(source) for source in sources.values()]
    notebook = nbformat.v4.new_notebook(cells=made)
    client = nbclient.NotebookClient(
        notebook,
        timeout=240,
        allow_errors=True,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    assert (folder / "run.json").is_file()
    return dict(zip(sources, notebook.cells, strict=True))


def html(cell: Any) -> str:
    """What the verdict of a cell is shown as."""
    shown = [output.data.get("text/html", "") for output in cell.outputs if "data" in output]
    return "".join(shown)


def printed(cell: Any, name: str = "stdout") -> str:
    """Its output on a stream."""
    return "".join(output.text for output in cell.outputs if output.get("name") == name)


def test_the_page_followed_literally(cells: dict[str, Any]) -> None:
    """The finding stands at the line of the cell in which the function is."""
    assert cells["page 1"].outputs == []
    text = html(cells["page 2"])
    assert "1 recompile in 3 steps" in text
    assert "CD107" in text
    assert "<code>factor</code> changes from call to call" in text
    assert re.search(r"1(</code>)? → (<code>)?2", text)
    assert "In[1]:6 in scaled" in text
    assert "ipykernel" not in text
    assert "next: <code>compilediag explain 1 receipt.json</code>" in text


def test_a_watched_cell_is_a_cell(cells: dict[str, Any]) -> None:
    """Its last value is displayed, its variables stay."""
    assert cells["value"].outputs[0].data["text/plain"] == "tensor(14.)"
    assert printed(cells["names"]).split() == ["14.0", "cell"]
    assert printed(cells["former name"]) == "former\n"


def test_a_cell_that_is_run_again(cells: dict[str, Any]) -> None:
    """Nothing compiles, which is no blindness; after a reset it does."""
    assert "nothing compiled in 3 calls of compiled functions: all was compiled before" in html(
        cells["again"]
    )
    assert "1 frame · 1 compile" in html(cells["reset"])


def test_an_exception_is_that_of_the_cell(cells: dict[str, Any]) -> None:
    """Raised after the verdict, without our frames, at the lines of the cell."""
    error = cells["error"].outputs[-1]
    assert (error.output_type, error.ename) == ("error", "KeyError")
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    assert "notebook.py" not in text
    assert re.search(r"^-*> 6 fails\(\)", text, re.MULTILINE)
    assert re.search(r"^-*> 5 +raise KeyError", text, re.MULTILINE)


def test_lines_are_those_of_the_cell(cells: dict[str, Any]) -> None:
    """A function that the watched cell defines; quiet shows nothing, a semicolon no value."""
    assert cells["own"].outputs == []
    assert printed(cells["lines"]).split() == ["flag", "5"]
    assert "CD107" in html(cells["shown"])


def test_options_and_unloading(cells: dict[str, Any]) -> None:
    """One sentence for what is wrong; the magic goes when it is unloaded."""
    assert printed(cells["option"], "stderr") == "UsageError: unrecognized arguments: --nonsense\n"
    assert "--configuration NAME, --lane NAME" in printed(cells["help"])
    assert printed(cells["left"]) == "False\n"
