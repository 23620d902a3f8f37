"""CD901 in words: why nothing can be said of compiles, and what to do."""

from __future__ import annotations

from compilediag.timeline.timeline import Timeline


def why_nothing(timeline: Timeline, eager: int) -> tuple[str, str]:
    """What was not seen, and what would show it; `eager` frames were tried and ran eager."""
    if timeline.train_log is not None and not timeline.processes:
        return (
            "the output of a trainer does not tell what torch.compile did",
            "analyze a TORCH_TRACE of the same run beside it, or run it under `compilediag run`",
        )
    if not any(process.torch is not None for process in timeline.processes):
        return (
            "torch was never seen in the run",
            "check that the target imports torch and is not started with python -I, -E or -S",
        )
    if not timeline.observes("metrics_rows"):
        return (
            "the record does not tell what was compiled",
            "analyze a TORCH_TRACE of the run: a text log tells recompiles and breaks only",
        )
    if eager:
        frames = "1 frame" if eager == 1 else f"{eager} frames"
        return (
            f"nothing was compiled: no graph is left of {frames}",
            "see why torch.compile gave those frames up: no call of them is compiled",
        )
    return (
        "nothing was compiled",
        "call torch.compile on what should be compiled, and run it at least once",
    )
