"""CD901: what the record says about why nothing was compiled, and no remedy that does not help."""

from dataclasses import replace

import pytest
from timelines import FILE, TORCH_FILE, attempt, process, site, timeline

from compilediag.diagnosis.findings import Finding
from compilediag.rules.diagnose import diagnose
from compilediag.rules.evidence import find_nothing_compiled
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import EvidenceLost, FrameSkipped, Location

NO_MODULE = "ModuleNotFoundError: No module named 'einops'\n\nTraceback (most recent call last):"
PACKAGES = "/venv/lib/python3.11/site-packages/torch"


def found(run: Timeline) -> Finding:
    (finding,) = find_nothing_compiled(run)
    return finding


def run_with(*, facts: dict[str, object] | None = None, **more: object) -> Timeline:
    """A process that saw torch and compiled nothing."""
    return timeline(processes=(process(facts=facts),), **more)


def test_torch_was_never_seen() -> None:
    """`python -I` defeats the attachment; where a process was attached, it is another one's."""
    alone = found(Timeline(processes=(process(torch=False),)))
    assert (alone.rule, alone.location, alone.evidence["why"]) == ("CD901", None, "no_torch")
    assert "no process that was observed imported it" in alone.title
    nobody = found(Timeline())
    assert (nobody.evidence["processes"], nobody.title) == (0, "torch was never seen in the run")
    assert "python -I" in nobody.fix.summary


def test_nothing_was_compiled() -> None:
    """torch ran, and no frame had a graph: an empty graph or a failed frame is none."""
    assert found(timeline()).title == "nothing was compiled"
    assert found(timeline([attempt("0/0", graph_ops=0)])).evidence["frames"] == 1
    assert "1 frame" in found(timeline([attempt("0/0", kind="failed")])).title
    asked = run_with(facts={"compile_requests": [{"backend": "eager"}]})
    assert found(asked).fix.summary.startswith("call what torch.compile returns")


@pytest.mark.parametrize(
    ("failure", "title", "fix"),
    [
        (NO_MODULE, "No module named 'einops'", "install 'einops' for python"),
        ("ImportError: libcudart.so.12: cannot open", "libcudart", "mend the exception"),
        ("ValueError: no data", "ValueError: no data", "mend the exception"),
        ('Traceback (most recent call last):\n  File "t"\nOSError: gone', "OSError: gone", "mend"),
        ("KeyboardInterrupt\n\nTraceback", "was interrupted", "let it run longer"),
    ],
)
def test_a_program_that_failed(failure: str, title: str, fix: str) -> None:
    """The failure is the reason, and "call torch.compile" would mend nothing."""
    for torch, when in ((False, "it imported torch"), (True, "anything was compiled")):
        run = timeline(processes=(process(torch=torch, failure=failure),))
        finding = found(run)
        assert title in finding.title
        assert f"before {when}" in finding.title
        assert finding.fix.summary.startswith(fix)
        assert finding.evidence["why"] in {"failed", "interrupted"}


def test_a_launcher_whose_child_failed() -> None:
    """The child's exception, whatever the launcher raised for it."""
    launcher = process(0, failure="torch.distributed.elastic.ChildFailedError: train.py FAILED")
    run = timeline(processes=(launcher, process(1, failure=NO_MODULE)))
    assert "einops" in found(run).title


@pytest.mark.parametrize(
    ("file", "title", "fix"),
    [
        (f"{PACKAGES}/nn/parallel/distributed.py", "its own wrapper", "compile the module inside"),
        (f"{PACKAGES}/distributed/fsdp/_fully_shard.py", "its own wrapper", "compile the module"),
    ],
)
def test_modules_of_torch(file: str, title: str, fix: str) -> None:
    """What to compile instead is the remedy; of other modules: the recorded run of torch_module."""
    skip = FrameSkipped(0.0, 0, Location(file, 5, "forward"), "frame is in the skipfiles list")
    finding = found(run_with(skipped=(skip,)))
    assert finding.evidence["why"] == "torch_modules"
    assert title in finding.title
    assert finding.fix.summary.startswith(fix)


def test_modules_of_torch_below_code_of_the_user() -> None:
    """A frame of the user's was tried: torch.nn is not why it has no graph."""
    skip = FrameSkipped(0.0, 0, Location(TORCH_FILE, 5, "forward"), "skipfiles")
    mine = timeline([attempt("0/0", graph_ops=0, where=Location(FILE, 1, "f"))], skipped=(skip,))
    assert found(mine).title == "nothing was compiled"


@pytest.mark.parametrize("by", ["row", "fact"])
def test_a_program_that_only_exports(by: str) -> None:
    """Neither blind for a reason that is none, nor clean of compiles it never had."""
    run = run_with(facts={"exported": True})
    if by == "row":
        run = replace(timeline(), ahead_of_time=(attempt(),))
    finding = found(run)
    assert finding.title.startswith("the program compiles ahead of time only (torch.export")
    assert finding.fix.summary.startswith("nothing, if that is intended")


@pytest.mark.parametrize(
    ("flags", "fix"),
    [
        ({"disabled_by_environment": True}, "unset TORCH_COMPILE_DISABLE"),
        ({"disable": True}, "leave torch._dynamo.config.disable False"),
        ({"stance": "force_eager"}, "leave the stance at 'default'"),
    ],
)
def test_torch_compile_switched_off(flags: dict[str, object], fix: str) -> None:
    """The switch is named."""
    assert found(run_with(facts={"compile": flags})).fix.summary.startswith(fix)


@pytest.mark.parametrize(
    ("reason", "fix"),
    [
        ("Python 3.9.18 (/usr/bin/python3.9) is older than 3.10, which is", "run the target with"),
        ("no Python process was observed: `python -I` ignores", "start Python without -E, -I"),
    ],
)
def test_a_python_that_could_not_be_observed(reason: str, fix: str) -> None:
    """One finding with the reason; that the record is torn would say the same again."""
    run = Timeline(lost=(EvidenceLost(0.0, 0, "attach", reason),))
    (finding,) = diagnose(run).findings
    assert (finding.rule, finding.title) == ("CD901", reason)
    assert finding.evidence["why"] == "not_attached"
    assert finding.fix.summary.startswith(fix)


@pytest.mark.parametrize(
    ("reason", "verdict", "codes"),
    [
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "findings", ["CD202"]),
        ("Call to `torch._dynamo.graph_break()`", "blind", ["CD901", "CD204"]),
    ],
)
def test_every_operation_lies_behind_a_break(reason: str, verdict: str, codes: list[str]) -> None:
    """What torch.compile returns was called, and the break is why nothing was compiled; one that
    was asked for explains nothing that the user would call a fault."""
    text = f"Graph break in user code at {FILE}:14\nGraph Break Reason: {reason}\n"
    run = timeline([attempt("0/0", graph_ops=0)], breaks=(site(text),))
    assert found(run).evidence["why"] == "behind_breaks"
    diagnosis = diagnose(run)
    assert diagnosis.verdict == verdict
    assert [item.rule for item in diagnosis.findings] == codes
    assert ("CD901" in diagnosis.findings[0].also) is (verdict == "findings")
