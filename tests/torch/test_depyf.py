"""`run --depyf`: what frames became, from a second run; the measured run and its verdict stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from depyf_program import run_depyf

from compilediag.runs.tools.depyf import time_for


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, str, str]:
    return run_depyf(tmp_path_factory.mktemp("depyf"))


def test_every_compile_has_its_file(run: tuple[Path, Any, str, str]) -> None:
    """A file a compile, linked from the receipt: code that runs, code it was made of, guards; a
    resume function says that it is what runs after the break."""
    folder, receipt, _, stderr = run
    uris = [item["uri"] for item in receipt["artifacts"] if item["role"] == "depyf"]
    names = {
        f"{event['compile_id'].replace('/', '-')}-{event['frame']['function']}.py"
        for event in receipt["compile"]["events"]
    }
    assert {uri.rpartition("/")[2] for uri in uris} == names
    texts = {uri: (folder / "out" / uri).read_text(encoding="utf-8") for uri in uris}
    assert all("--- what runs" in text for text in texts.values())
    assert all("TREE_GUARD_MANAGER" in text for text in texts.values())
    resumed = [text for uri, text in texts.items() if "torch_dynamo_resume_in" in uri]
    assert resumed
    assert all("what runs after a graph break" in text for text in resumed)
    first = next(text for uri, text in texts.items() if uri.endswith("0-0-scale.py"))
    assert "__compiled_fn_" in first
    assert "what torch.compile made of each frame: out/artifacts/depyf" in stderr


def test_show_links_the_files_from_the_frames(
    run: tuple[Path, Any, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`show --frames` names the file of each compile, and what a resume function is."""
    from compilediag import cli

    assert cli.main(["show", "--frames", str(run[0] / "out")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "0/0 scale, what runs: artifacts/depyf/0-0-scale.py" in shown
    assert "what runs after the break: artifacts/depyf/1-0-torch_dynamo_resume_in" in shown


# --- a second run that is no torch program ---------------------------------------------------


def test_a_second_run_has_time_for_empty_caches() -> None:
    """Three times what was measured, and two minutes."""
    assert time_for(10.0) == 150.0
