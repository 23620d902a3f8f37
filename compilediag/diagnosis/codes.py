"""The register of every code: slug, one sentence, default severity. A code is never reused."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from compilediag.diagnosis.findings import Severity


class CodeInfo(NamedTuple):
    """One code of the register. The code and its slug keep their meaning for ever."""

    code: str
    slug: str
    """With hyphens, "lazy-buffer"."""
    sentence: str
    severity: Severity = "warning"
    """Of its findings, unless a rule knows better."""
    blinds: bool = False
    """Without that evidence nothing may be called clean, and no count is sure."""

    @property
    def family(self) -> str:
        """The slug with underscores: a key of `recompiles_by_family`."""
        return self.slug.replace("-", "_")

    @property
    def how(self) -> str:
        """The documentation page."""
        return f"docs/rules/{self.code}.md"


def info(code: str) -> CodeInfo:
    """The register's entry for a code. Raises KeyError for a code that does not exist."""
    return REGISTER[code]


def slug_of(code: str) -> str:
    """The slug of a code: "lazy-buffer" of "CD103". Raises KeyError for an unknown code."""
    return REGISTER[code].slug


_RECOMPILES = (
    CodeInfo("CD101", "closure-flag", "a value captured by a function changed"),
    CodeInfo(
        "CD102",
        "closure-container",
        "a container captured by a function changed its length, keys or membership",
    ),
    CodeInfo(
        "CD103",
        "lazy-buffer",
        "a buffer or cached tensor was created or reassigned with another shape, or its companion "
        "int or flag changed",
    ),
    CodeInfo("CD104", "module-attribute", "a Python attribute of an object changed"),
    CodeInfo("CD105", "dynamic-size", "a tensor argument has another size"),
    CodeInfo(
        "CD106",
        "tensor-metadata",
        "dtype, stride, device, rank, requires_grad or type of a tensor changed",
    ),
    CodeInfo("CD107", "python-scalar", "an int, float, bool, str or enum argument changed"),
    CodeInfo(
        "CD108",
        "container-structure",
        "length, keys, order or type of an argument container changed",
    ),
    CodeInfo(
        "CD109",
        "global-variable",
        "a module-level name, config global or environment value changed",
    ),
    CodeInfo(
        "CD110",
        "object-identity",
        "another function, class or object type was passed, or a guarded object died",
    ),
    CodeInfo(
        "CD111",
        "global-mode",
        "grad mode, train/eval, autocast, precision, threads, device or mode stack changed",
    ),
    CodeInfo(
        "CD112",
        "backend-identity",
        "the same code was compiled again with another backend object or options",
    ),
    CodeInfo("CD113", "aliasing", "inputs became or stopped being the same tensor, or overlap"),
    CodeInfo("CD114", "optional-argument", "an argument alternates between None and tensor"),
    CodeInfo("CD115", "hook-set", "the number of hooks on a module changed"),
    CodeInfo(
        "CD116",
        "optimizer-state",
        "lr, groups, state or missing gradients changed in an optimizer frame",
    ),
    CodeInfo(
        "CD117",
        "instance-variant",
        "instances that share code differ in a guarded value: one cache entry each, then eager",
    ),
    CodeInfo(
        "CD118",
        "shape-constraint",
        "a dynamic size left the region its graph is valid for",
    ),
    CodeInfo(
        "CD119",
        "unguarded-change",
        "hooks or methods changed after compile and no guard sees it: the compiled result is stale",
        "error",
    ),
)

_COMPILES = (
    CodeInfo("CD150", "armed-guard", "a guard is already false: the next call will recompile"),
    CodeInfo(
        "CD151",
        "variant-forecast",
        "the combinations seen or possible will exceed the recompile limit",
    ),
    CodeInfo(
        "CD152", "recompile-limit-hit", "the limit was hit: eager from here, silently", "error"
    ),
    CodeInfo("CD153", "compiled-autograd", "compiled autograd captured or compiled again"),
    CodeInfo("CD154", "constraint-violated", "a size declared dynamic became static", "error"),
)

_UNCLASSIFIED = (CodeInfo("CD190", "unclassified", "a recompile whose reason no rule knows"),)

_BREAKS = (
    CodeInfo(
        "CD201",
        "data-dependent-control-flow",
        "an if, while or assert depends on tensor data",
    ),
    CodeInfo(
        "CD202",
        "data-dependent-value",
        "tensor data became a Python number, a size or an index",
    ),
    CodeInfo(
        "CD203",
        "unsupported-call",
        "a builtin, C function, object protocol or bytecode that Dynamo does not model",
    ),
    CodeInfo("CD204", "skipped-or-disabled", "code that is disabled, skipped or breaks on purpose"),
    CodeInfo("CD205", "generator-iterator", "a generator or iterator that Dynamo cannot trace"),
    CodeInfo("CD206", "context-manager", "a with block that Dynamo cannot trace"),
    CodeInfo(
        "CD207", "attribute-mutation", "attributes are set, read or rebuilt in an untraceable way"
    ),
    CodeInfo("CD208", "tensor-type", "a tensor type or script module that Dynamo does not support"),
    CodeInfo("CD209", "autograd-and-hooks", "backward, autograd or hooks inside the region"),
    CodeInfo(
        "CD210",
        "operator-or-backend",
        "an operator without a fake kernel, or an exception of the backend",
    ),
    CodeInfo("CD211", "logging-io-time", "print, logging, warnings, clocks or files in the region"),
    CodeInfo("CD212", "numpy-random", "numpy or random calls, or the state of a generator"),
    CodeInfo("CD213", "exceptions", "an exception is raised or caught in an untraceable form"),
    CodeInfo("CD214", "higher-order-op", "a control-flow operator was used against its contract"),
    CodeInfo("CD290", "other", "a graph break that fits no category: torch's title is shown"),
)

_STEPS = (
    CodeInfo("CD301", "sync-loop", "host-device synchronisations in a loop, by user line"),
    CodeInfo(
        "CD302",
        "compile-in-steady-state",
        "a first compile or recompile inside a timed or steady step",
    ),
    CodeInfo(
        "CD303",
        "timer-scope",
        "a time that claims to be the model's holds host work, or only launch time",
    ),
    CodeInfo("CD304", "cadence-recompile", "a periodic spike is compilation, not the metric"),
    CodeInfo(
        "CD305",
        "cadence-cost",
        "a periodic metric's genuine recurring cost, and what collisions add",
        "info",
    ),
    CodeInfo("CD306", "packing-copies", "large buffers are zero-filled and overwritten every step"),
    CodeInfo("CD307", "data-bound", "the step waits for data"),
    CodeInfo(
        "CD308",
        "pipeline-bottleneck",
        "which side of a producer-consumer loop is the bottleneck",
        "info",
    ),
)

_CUDA_GRAPHS = (
    CodeInfo("CD401", "cudagraph-skipped", "CUDA graphs were skipped, with torch's reason"),
    CodeInfo("CD402", "cudagraph-rerecorded", "a CUDA graph was recorded again, by reason"),
    CodeInfo("CD403", "too-many-sizes", "one CUDA-graph recording per distinct size"),
    CodeInfo(
        "CD404",
        "output-overwritten",
        "an output living in a graph's pool is used after the next replay",
        "error",
    ),
    CodeInfo(
        "CD405",
        "static-address-churn",
        "inputs declared static keep moving: a silent recording per call",
    ),
    CodeInfo("CD406", "padding-contaminates", "outputs of real rows depend on padding", "error"),
    CodeInfo("CD407", "padding-waste", "buckets waste work; the plan says which would not"),
    CodeInfo("CD408", "early-exit-waste", "most rows are done and all are still computed"),
    CodeInfo(
        "CD409", "beyond-knee", "the batch size is past the throughput knee or its memory cap"
    ),
)

_MEMORY = (
    CodeInfo("CD501", "fragmentation", "reserved memory grows while allocated stays flat"),
    CodeInfo("CD502", "allocation-retries", "allocation retries or out-of-memory events"),
    CodeInfo("CD503", "memory-growth", "a memory pool grows every step"),
    CodeInfo("CD511", "cache-use", "compile cache hits and misses", "info"),
    CodeInfo("CD512", "fallback-kernel", "extern kernels in the compiled graph", "info"),
)

_EVIDENCE = (
    CodeInfo(
        "CD901",
        "nothing-compiled",
        "no frame was compiled: the verdict is blind",
        "error",
        blinds=True,
    ),
    CodeInfo("CD902", "torn-evidence", "part of the record was lost", blinds=True),
    CodeInfo(
        "CD903", "sources-disagree", "events, metrics and text do not agree", "error", blinds=True
    ),
    CodeInfo("CD904", "ran-eager", "a frame that should be compiled ran eager"),
    CodeInfo(
        "CD905",
        "stored-profile",
        "a stored dynamic-shape profile changed what was compiled",
        "info",
    ),
)

REGISTER: dict[str, CodeInfo] = {
    entry.code: entry
    for group in (
        _RECOMPILES,
        _COMPILES,
        _UNCLASSIFIED,
        _BREAKS,
        _STEPS,
        _CUDA_GRAPHS,
        _MEMORY,
        _EVIDENCE,
    )
    for entry in group
}
"""Every code that exists, in order."""
