"""The parts of the supervisor that need no child: target, timetable, environment, ending."""

from __future__ import annotations

from ended_runs import ended, journal

from compilediag.runs.supervised.assemble import recorded_variables
from compilediag.runs.supervised.child import child_environment
from compilediag.runs.supervised.exit_status import exit_status_of, notes_on_attachment
from compilediag.runs.supervised.target import Target

SCRIPT = Target("script", ("python", "x.py"), "x", script="x.py")


# --- the environment -------------------------------------------------------------------------


def test_the_users_own_trace_is_kept() -> None:
    """--trace does not redirect a trace the user asked torch for."""
    child = child_environment({"TORCH_TRACE": "/mine"}, "/run", trace_dir="/run/t")
    assert child["TORCH_TRACE"] == "/mine"


def test_only_listed_variables_are_recorded() -> None:
    """What changes torch is kept; everything else, tokens above all, is not."""
    reported = recorded_variables(
        {"TORCH_LOGS": "x", "RANK": "0", "HF_TOKEN": "t", "HOME": "/h", "PATH": "/b"}
    )
    assert reported == {"TORCH_LOGS": "x", "RANK": "0"}


# --- the ending ------------------------------------------------------------------------------


def test_a_torch_logs_word_is_explained() -> None:
    """torch's page of words becomes one sentence with the wrong one."""
    raised = (
        "ValueError: Invalid log settings: recompile, must be a comma separated list of fully "
        "qualified module names\n\ntrace"
    )
    ending = exit_status_of(ended(1), SCRIPT, [journal(10, raised)])
    assert ending.reason is not None
    assert ending.reason.startswith("torch refused TORCH_LOGS because of 'recompile'")


def test_notes_name_old_torch_and_faults() -> None:
    """One sentence each."""
    notes = notes_on_attachment(SCRIPT, [journal(1, None)], ["2.6.0+cpu", "2.13.0"], ["E: x"])
    assert notes == [
        "compilediag could not attach to a process: E: x",
        "torch 2.6.0+cpu is older than 2.7: what was counted may be wrong; use a newer torch",
    ]
