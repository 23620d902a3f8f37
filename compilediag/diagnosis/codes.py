"""The register of every code: slug, one sentence, default severity. A code is never reused."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, cast

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""The worst first."""


class CodeInfo(NamedTuple):
    """One code of the register. The code and its slug keep their meaning for ever."""

    code: str
    slug: str
    """With hyphens, "lazy-buffer"."""
    sentence: str
    severity: Severity = "warning"
    """Of its findings, unless a rule decides otherwise."""
    blinds: bool = False
    """Without that evidence nothing may be called clean, and no count is sure."""
    owner: str = ""
    """Whose value changed, in a cause of recompiles: "argument", "closure", "global", "object" (or
    module), "instance" (of those that share code), "module" (its hooks), "optimizer", "process"
    (no variable of the program holds it), or "several"."""
    changed: str = ""
    """What of it: "value", "scalar" (a number, flag or text), "container", "tensor", "size",
    "metadata" (what is no size of a tensor), "condition" (of a graph on sizes), "mode"..."""

    @property
    def family(self) -> str:
        """The slug with underscores: a key of `recompiles_by_family`."""
        return self.slug.replace("-", "_")

    @property
    def how(self) -> str:
        """The documentation page."""
        return f"docs/rules/{self.code}.md"


_TABLE = """
CD101 closure-flag (closure value): a value captured by a function changed
CD102 closure-container (closure container): a container captured by a function changed its length,
    keys or membership
CD103 lazy-buffer (object tensor): a buffer or cached tensor was created or reassigned with a new
    shape, or its companion int or flag changed
CD104 module-attribute (object value): a Python attribute of an object changed
CD105 dynamic-size (argument size): a tensor argument has a different size
CD106 tensor-metadata (argument metadata): dtype, stride, device, rank, requires_grad or type of a
    tensor changed
CD107 python-scalar (argument scalar): an int, float, bool, str or enum argument changed
CD108 container-structure (argument container): length, keys, order or type of an argument container
    changed
CD109 global-variable (global value): a module-level name, config global or environment value
    changed
CD110 object-identity (argument identity): another function, class or object type was passed, or a
    guarded object died
CD111 global-mode (process mode): grad mode, train/eval, autocast, precision, threads, device or
    mode stack changed
CD112 backend-identity: the same code was compiled with a different backend object or options
CD113 aliasing (argument identity): inputs became or stopped being the same tensor, or overlap
CD114 optional-argument (argument presence): an argument alternates between None and a tensor
CD115 hook-set (module hooks): the number of hooks on a module changed
CD116 optimizer-state (optimizer value): lr, groups, state or missing gradients changed in an
    optimizer frame
CD117 instance-variant (instance value): instances that share code differ in a guarded value: one
    cache entry each, then eager
CD118 shape-constraint (argument condition): a dynamic size left the region its graph is valid for
CD119 unguarded-change error: hooks or methods changed after compile and no guard sees it: the
    compiled result is stale
CD120 value-combination (several values): values that were each compiled before met in a new
    combination
CD150 armed-guard: a guard is already false: the next call will recompile
CD151 variant-forecast: the variants of a frame are near the recompile limit
CD152 recompile-limit-hit error: the limit was hit: eager from here, silently, or an error under
    fullgraph=True
CD153 compiled-autograd: compiled autograd captured or compiled again
CD154 constraint-violated error: a size declared dynamic became static
CD190 unclassified: a recompile whose reason no rule knows
CD201 data-dependent-control-flow: an if, while or assert depends on tensor data
CD202 data-dependent-value: tensor data became a Python number, a size or an index
CD203 unsupported-call: a builtin, C function, object protocol or bytecode that Dynamo does not
    model
CD204 skipped-or-disabled: code that is disabled, skipped or breaks on purpose
CD205 generator-iterator: a generator or iterator that Dynamo cannot trace
CD206 context-manager: a with block that Dynamo cannot trace
CD207 attribute-mutation: attributes are set, read or rebuilt in an untraceable way
CD208 tensor-type: a tensor type or script module that Dynamo does not support
CD209 autograd-and-hooks: backward, autograd or hooks inside the region
CD210 operator-or-backend: an operator without a fake kernel, or an exception of the backend
CD211 logging-io-time: print, logging, warnings, clocks or files in the region
CD212 numpy-random: numpy or random calls, or the state of a generator
CD213 exceptions: an exception is raised or caught in an untraceable form
CD214 higher-order-op: a control-flow operator was used against its contract
CD290 other: a graph break that fits no category: torch's title is shown
CD301 sync-loop: host-device synchronisations in a loop, by user line
CD302 compile-in-steady-state: a first compile or recompile inside a timed or steady step
CD303 timer-scope: a time reported as the model's includes host work
CD304 cadence-recompile: a periodic spike is compilation, not the metric
CD305 cadence-cost info: a periodic metric's genuine recurring cost, and what collisions add
CD306 packing-copies: large buffers are zero-filled and overwritten every step
CD307 data-bound: the step waits for data
CD308 pipeline-bottleneck info: which side of a producer-consumer loop is the bottleneck
CD401 cudagraph-skipped: CUDA graphs were skipped, with torch's reason
CD402 cudagraph-rerecorded: a CUDA graph was recorded again, by reason
CD403 too-many-sizes: one CUDA-graph recording per distinct size
CD404 output-overwritten error: an output living in a graph's pool is used after the next replay
CD405 static-address-churn: inputs declared static keep moving: a silent recording per call
CD406 padding-contaminates error: outputs of real rows depend on padding
CD407 padding-waste: the buckets waste work; the plan names better ones
CD408 early-exit-waste: most rows are finished, but all are still computed
CD409 beyond-knee: the batch size is past the throughput knee or its memory cap
CD501 fragmentation: reserved memory grows while allocated stays flat
CD502 allocation-retries: allocation retries or out-of-memory events
CD503 memory-growth: a memory pool grows every step
CD511 cache-use info: compile cache hits and misses
CD512 fallback-kernel info: extern kernels in the compiled graph
CD601 repeated-blocks info: equal blocks are compiled as one graph, which takes most compile time
CD602 analysis-restarts info: a frame was traced again from its beginning, at a graph break for one
CD603 autotuning-dominates info: trying kernels takes at least half of the compile time
CD604 builds-without-cache info: kernels are built at every start because torch's caches are off
CD611 cache-bypass: torch caches nothing of a graph, so every start compiles it again
CD612 changing-cache-key: a compile cache gets a different key at every start
CD613 cache-not-kept: the compile caches cannot be written, or are not kept
CD614 half-cached: a compile cache has the entry of an earlier start, and its graphs are gone
CD621 guard-cost: evaluating guards takes at least a twentieth of each step
CD631 slower-than-eager: a compiled callable, or the steps, take longer than eager in steady state
CD641 ranks-wait-for-compiles: ranks wait while others compile, up to a collective's timeout
CD651 other-numbers error: compiled calls give numbers that eager's own rounding does not explain
CD652 lost-effect error: torch left an in-place write or a draw out of a graph, draws a number once
    for all its calls, or reads another one than was drawn: values are wrong, without a word
CD901 nothing-compiled error blinds: no frame was compiled: the verdict is blind
CD902 torn-evidence blinds: part of the record was lost
CD903 sources-disagree error blinds: events, metrics and text do not agree
CD904 ran-eager: a frame that should be compiled ran eager
CD905 stored-profile info: a stored dynamic-shape profile changed what was compiled
"""
"""CODE slug [severity, "warning" if absent] [blinds] [(owner changed)]: sentence."""

_ROW = re.compile(
    r"^(?P<code>CD\d{3}) (?P<slug>[a-z-]+)(?: (?P<severity>error|info))?(?P<blinds> blinds)?"
    r"(?: \((?P<owner>[a-z]+) (?P<changed>[a-z]+)\))?: (?P<sentence>.+(?:\n .+)*)",
    re.MULTILINE,
)


REGISTER = {
    row["code"]: CodeInfo(
        code=row["code"],
        slug=row["slug"],
        sentence=" ".join(row["sentence"].split()),
        severity=cast("Severity", row["severity"] or "warning"),
        blinds=row["blinds"] is not None,
        owner=row["owner"] or "",
        changed=row["changed"] or "",
    )
    for row in _ROW.finditer(_TABLE)
}
"""Every code that exists, in order."""

WRITTEN = frozenset(("CD101", "CD102", "CD104", "CD106", "CD109", "CD111"))
"""Codes of values that some line changes between the calls."""
SIZES = frozenset(("CD105", "CD118"))
"""Codes of sizes, which torch makes dynamic at their second value."""
VALUES = frozenset(("CD104", "CD107", "CD109", "CD116"))
"""Codes of values that Dynamo guards as they are, or as a number of a shape condition."""
BY_KIND = frozenset(("CD105", "CD106", "CD110", "CD111", "CD118"))
"""Codes whose kinds have different fixes: each kind is a cause of its own."""
TEMPORARY = "___"
"""How Dynamo's own names begin, which no program can use: `___stack0`."""
LIMIT = frozenset(("CD151", "CD152"))
"""Codes of the recompile limit: near it, and at it."""
EAGER = frozenset(("CD152", "CD154", "CD210", "CD904"))
"""Codes of frames that run eager, whatever for: each names its frame by its place."""
WRONG = frozenset(("CD119", "CD652"))
"""Codes of compiled code that does not do what the code does, without a word from torch."""
OUTLOOK = frozenset(("CD150", "CD151"))
"""Codes of what has not happened yet: an armed guard, a forecast."""
BLIND = frozenset(code for code, code_info in REGISTER.items() if code_info.blinds)
"""Codes of missing or contradicting evidence."""
RECOMPILES = (
    "CD105", "CD101", "CD102", "CD103", "CD104", "CD117", "CD118", "CD106", "CD113", "CD114",
    "CD107", "CD108", "CD110", "CD109", "CD111", "CD112", "CD115", "CD116", "CD190",
)  # fmt: skip
"""Codes of the causes of recompiles: of findings that cost the same, the first is shown first."""
UNREPEATABLE = {
    "CD116": "its guards lie in torch's own optimizer, over the state of a training run",
    "CD119": "no guard sees the change, so nothing compiles again",
    "CD150": "it has not happened yet: the next call of the run would have compiled again",
    "CD151": "it is a forecast over many values",
    "CD152": "it is the end of a series of recompiles: repeat the findings that it consists of",
    "CD153": "it depends on the autograd graph of the run",
    "CD154": "it depends on what was declared dynamic, and on the operations of the frame",
    "CD190": "no rule covers its guard",
}
"""Why a small program cannot repeat a finding about recompiles, where none can."""
