"""A receipt built from events made by hand, as many tests need one."""

from dataclasses import replace
from typing import Any

import msgspec

from compilediag.diagnosis.causes.run_causes import find_run_causes
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.reconcile import Agreement
from compilediag.extensions.prices import Price, PriceTable
from compilediag.receipt.assemble import build_receipt
from compilediag.receipt.run_metadata import JournalFacts, RunMetadata
from compilediag.receipt.schema.compiles import FixRecord
from compilediag.receipt.schema.identity import Provenance
from compilediag.receipt.schema.receipt import Artifact, Receipt
from compilediag.rules.diagnose import Diagnosis
from compilediag.timeline.timeline import fold
from compilediag_harness import wire

CWD = "/home/someone/project"
FRAME = wire.Location(f"{CWD}/model.py", 13, "forward")
ABLATION = f"file://{CWD}/ablation.json"
HOOK = wire.Location(f"{CWD}/model.py", 21, "hook")
BREAK = f"""Graph break in user code at {CWD}/model.py:31
Graph Break Reason: Data-dependent branching
  Explanation: Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`).
  Hint: Use `torch.cond`.

  Developer debug context: attempted to jump with TensorVariable()

 For more details about this graph break, please visit: https://x.org/gb/gb0170.html
User code traceback:
  File "{CWD}/model.py", line 31, in forward
    if x.sum() > 0:
"""


def started(rank: int | None = None, size: int | None = None, pid: int = 7) -> wire.ProcessStarted:
    argv = ("model.py", "--lr", "3e-4")
    return wire.ProcessStarted(
        0.0, 1, pid, 6, rank, size, argv, "/usr/bin/python", CWD, "2026-11-20T14:45:00Z", "3.11.7"
    )


def torch_seen(lost: dict[str, str] | None = None) -> wire.TorchSeen:
    hooks = {"metrics_rows": True, "recompile_reasons": True, "compile_callback": True}
    return wire.TorchSeen(
        0.1, "2.13.0+cpu", "cf30153c4c131c8164ee7798e5022d810682e2cb", hooks, lost or {}
    )


def compiled(compile_id: str, t: float, step: int, seconds: float, **changes: Any) -> wire.Compiled:
    row = wire.Compiled(
        t=t,
        step=step,
        compile_id=compile_id,
        epoch=0,
        frame=FRAME,
        forward=True,
        guarded=True,
        seconds=seconds,
        backend_s=seconds / 4,
        graph_ops=6,
        guards=143,
        cache_size=0,
        recompile_reason=None,
        fail_type=None,
        fail_reason=None,
        limit=8,
        guard_eval_us=31.0,
    )
    return replace(row, **changes)


def flag_guard(expected: str = "False", actual: str = "True") -> wire.FalseGuard:
    return wire.FalseGuard(
        source="L['s']._modules['l']._forward_hooks[0].__closure__[0].cell_contents",
        leaf="FALSE_MATCH",
        text="L['s']._modules['l']._forward_hooks[0].__closure__[0].cell_contents == False",
        expected=expected,
        actual=actual,
        user=HOOK,
        hint='guard on "capture"',
        facts=wire.GuardFacts(root="argument", free_variable="capture", value_type="bool"),
        writers=(wire.Location(f"{CWD}/model.py", 23, "add_hook.<locals>.setc"),),
    )


def recompiled(compile_id: str, t: float, step: int, *guards: wire.FalseGuard) -> wire.Recompiled:
    entry = wire.EntryDiff("0/0", guards or (flag_guard(),), checked=143)
    reasons = (f"0/0: {entry.guards[0].text}",)
    return wire.Recompiled(t, step, compile_id, 0, FRAME, reasons, (entry,), 0.002)


def ended(**changes: Any) -> wire.ProcessEnded:
    counters = {"metrics_rows": 3, "recompile_calls": 1, "break_events": 1}
    return replace(wire.ProcessEnded(4.0, counters, 0.006, 0, 812_000_000), **changes)


def tracked() -> wire.RunTracked:
    """A run that the program tracked itself."""
    metrics = (
        wire.TrackedMetric("step_s", 2, 0.5, 0.5, 0.25, 0.75, 0.75, 2),
        wire.TrackedMetric("loss", 3, 2.0, 1.5, 1.0, 3.5, 1.0, 3),
    )
    return wire.RunTracked(
        t=3.75,
        number=1,
        name="eval/copy",
        config={"task": "copy", "shots": 5},
        state="finished",
        steps=3,
        first_step=0,
        last_step=2,
        wall_s=2.0,
        steps_s=1.0,
        warmup=1,
        peak_bytes=812_000_000,
        peak_at_start_bytes=811_000_000,
        peak_source="VmHWM",
        totals={"tokens": 24.0},
        per_s={"tokens": 16.0},
        metrics=metrics,
    )


def events() -> list[wire.Event]:
    """A run of one process: a first compile, a recompile, a lazy backward, a break, 12 steps."""
    walls = (1.5, 0.0005, 0.0006, 0.25) + (0.0005,) * 8
    ends = tuple(1.0 + sum(walls[: place + 1]) for place in range(len(walls)))
    facts = {
        "os": "Linux 6.1",
        "cpu_count": 2,
        "gpus": [],
        "cpu_model": "AMD EPYC 7B13",
        "ram_bytes": 24_696_061_952,
        "load_avg_1m": 0.4,
        "precision": "fp32",
        "numerics_flags": {"matmul_precision": "highest", "num_threads": 2},
        "compile": {"recompile_limit": 8},
    }
    return [
        started(),
        torch_seen(),
        wire.EnvironmentRead(0.2, facts),
        compiled("0/0", 2.25, 0, 1.0),
        wire.GraphBroke(2.0, 0, "0/0", 0, BREAK),
        compiled("0/0", 2.4, 0, 0.125, forward=False, frame=wire.Location("", 0, "")),
        recompiled("0/1", 2.6, 3),
        compiled("0/1", 2.7, 3, 0.1875),
        wire.StepsEnded(3.0, 0, "optimizer", ends, walls),
        wire.SpanEnded(3.25, 12, "checkpoint", 3.0, 0.25, 0, 0),
        tracked(),
        wire.AblationWritten(3.9, "no-rope", "mlp", 2, 3, 1, 2, "full", ABLATION, 362, "cd" * 32),
        ended(),
    ]


def finding(**changes: Any) -> Finding:
    made = Finding(
        rule="CD101",
        slug="closure-flag",
        severity="error",
        confidence="exact",
        family="closure_flag",
        variable="capture",
        title="capture changed",
        location=HOOK,
        ownership="user",
        count=1,
        steps=(3,),
        cost_s=0.1875,
        fix=FixRecord(
            summary="decorate hook with @torch.compiler.disable",
            how="docs/rules/CD101.md",
            caveat="one break",
        ),
        evidence={"compile_ids": ["0/1"], "writers": [f"setc {CWD}/model.py:23"]},
        id="F1",
    )
    return msgspec.structs.replace(made, **changes)


AGREED = Agreement({"events": True, "metrics": True, "text_log": False}, True, (), {"rows": 3})
DIAGNOSIS = Diagnosis((finding(),), "findings", AGREED)
PRICES = PriceTable(
    *("USD", (), (Price("AMD EPYC*", 0.5),), "prices.toml", "ef" * 32),
    source="finance price list",
    as_of="2026-11-01",
)


RUN = RunMetadata(
    receipt_id="01JD3Q0000000000000000000Z",
    created_at_utc="2026-11-20T14:45:00Z",
    exit_code=0,
    wall_s=5.0,
    argv=("model.py", "--lr", "3e-4"),
    environment={"TORCH_LOGS": "recompiles"},
    provenance=Provenance(
        git_commit="0123456789abcdef0123456789abcdef01234567",
        git_branch="main",
        git_dirty=False,
        git_message_short="x",
        source="git",
    ),
    configuration_name="gpt-small/train",
    run_id="7f3c",
    journal=JournalFacts(11),
    bytes_written=48_211,
    prices=PRICES,
    artifacts=(
        Artifact(
            role="torch_logs",
            uri="file:torch_logs.txt",
            media_type="text/plain",
            bytes=5,
            sha256="ab" * 32,
        ),
    ),
)


def built(
    more: list[wire.Event] | None = None, run: RunMetadata = RUN, diagnosis: Diagnosis = DIAGNOSIS
) -> Receipt:
    """The receipt of `events` or others."""
    timeline = fold([events() if more is None else more], None, (CWD,))
    return build_receipt(timeline, replace(diagnosis, causes=find_run_causes(timeline)), run)
