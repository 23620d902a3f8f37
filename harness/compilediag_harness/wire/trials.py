"""Plan of a trial, a run with a change that the program itself does not have, and its outcomes.

The plan is a JSON file that the outside writes (`TrialPlan`, by field); what was applied and what
the program computed come back as events.
"""

from __future__ import annotations

from dataclasses import dataclass

from compilediag_harness.wire.event import Event, Location, event


@dataclass(frozen=True, slots=True)
class SettingChange:
    """An option of one of torch's configuration modules, set right after the module is imported."""

    module: str
    """"torch._dynamo.config", "torch.compiler.config", "torch.fx.experimental._config"."""
    name: str
    value: bool | int | float | str | None

    @property
    def label(self) -> str:
        return f"{self.module}.{self.name} = {self.value!r}"


@dataclass(frozen=True, slots=True)
class CompileOption:
    """A keyword that every call of `torch.compile` gets, such as `dynamic=True`."""

    name: str
    value: bool | int | float | str | None

    @property
    def label(self) -> str:
        return f"torch.compile({self.name}={self.value!r})"


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """Something done to an argument before each outermost call of a compiled function."""

    function: Location
    """Its code: file, first line, name."""
    argument: str
    """As guards name it, without the scope: "x", "args[0]", "batch['ids']"."""
    action: str
    """"mark_dynamic", "maybe_mark_dynamic" or "mark_unbacked"."""
    dimension: int | None = None

    @property
    def label(self) -> str:
        dimension = "" if self.dimension is None else f", {self.dimension}"
        return f"{self.action}({self.argument}{dimension}) before {self.function.function}"


@dataclass(frozen=True, slots=True)
class SourceChange:
    """Another text of a source file, read in place of the file; the file itself stays."""

    file: str
    sha256: str
    """Of the file that the text was made from; with any other content nothing is replaced. Empty:
    there is no such file, and the text is that of a new one."""
    text: str

    @property
    def label(self) -> str:
        return f"another text of {self.file}"


@dataclass(frozen=True, slots=True)
class PaddedDimension:
    """One dimension of one argument."""

    argument: str
    """As `FixedShape` names it: "obs", "batch.obs"."""
    dimension: int


@dataclass(frozen=True, slots=True)
class PaddedAxis:
    """A size of arguments that changes from call to call, and the sizes to run at."""

    dims: tuple[PaddedDimension, ...]
    buckets: tuple[int, ...]
    """Ascending."""


@dataclass(frozen=True, slots=True)
class PaddedFunction:
    """A function that is called compiled behind a `FixedShape`: padded to a few sizes, and its
    outputs cut back."""

    function: Location
    """Its code: file, first line, name."""
    axes: tuple[PaddedAxis, ...]
    """One or two; the first is that of rows."""
    pad: int | None = None
    """What padding holds; None: the last row again."""

    @property
    def label(self) -> str:
        sizes = " x ".join(str(list(axis.buckets)) for axis in self.axes)
        pad = "" if self.pad is None else f", pad={self.pad}"
        return f"FixedShape({self.function.function}, {sizes}{pad})"


@dataclass(frozen=True, slots=True)
class WatchedLines:
    """Lines of a file whose execution is noted."""

    file: str
    lines: tuple[int, ...]
    """-30: the way past an `if` at line 30, whose block begins with the next line of these."""


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """Plan of what is recorded of a run."""

    seed: int
    """Of `random`, NumPy's and torch's generators, set once each when they are imported."""
    vary_s: float = 0.0
    """Longest time of the varied calls, in seconds, longer where the program compiles for long; 0:
    none is made."""
    boundaries: tuple[Location, ...] = ()
    """Functions of the program that are called again in place of the compiled calls inside them."""
    lines: tuple[WatchedLines, ...] = ()
    hides_hash_seed: bool = False
    """Whether PYTHONHASHSEED is taken out of the environment that the program sees: it was set for
    the recording alone."""
    repeats: bool = False
    """Whether calls are made again as they were alone: eager twice, in float64, and compiled."""


@dataclass(frozen=True, slots=True)
class WriteProtection:
    """Files that the program must not change: it gets others in their place."""

    folder: str
    """Of the trial; it holds what is written."""
    roots: tuple[str, ...]
    """Folders with files of the user; all but `free` is protected too."""
    free: tuple[str, ...]
    """Folders that are written as they are: temporary files, caches. The innermost one counts."""
    recent: tuple[str, ...] = ()
    """Files of which it is noted that the program read them."""
    absent: tuple[str, ...] = ()
    """Files and folders that the program must not find: an earlier execution made them."""


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Changes of a trial, and what is recorded of its outcomes."""

    settings: tuple[SettingChange, ...] = ()
    compile_options: tuple[CompileOption, ...] = ()
    arguments: tuple[ArgumentChange, ...] = ()
    sources: tuple[SourceChange, ...] = ()
    stance: str | None = None
    """A stance of `torch.compiler.set_stance` for the whole run: "force_eager" is the reference."""
    seed: int | None = None
    """For `random`, NumPy and torch, set once each when they are imported."""
    backend: str | None = None
    """What compiles in place of the backend that the program passes: "eager"."""
    padded: tuple[PaddedFunction, ...] = ()
    check_padding: bool = False
    """Whether each `FixedShape`, the program's own too, is checked for harm by padding, by the
    first call in each mode (gradients, training)."""
    call_seconds: bool = False
    """Whether calls of compiled callables are timed, one by one."""
    absent: tuple[str, ...] = ()
    """Source files that this state of the program does not have: to be imported as if they were not
    there."""
    recording: RecordingPlan | None = None
    protection: WriteProtection | None = None

    @property
    def looks_at_calls(self) -> bool:
        """True if something is done at each call of a compiled callable: none may go unreported."""
        changes = (self.arguments, self.padded, self.settings)
        watches = self.check_padding or self.recording is not None
        return watches or any(changes)

    @property
    def labels(self) -> tuple[str, ...]:
        """Every change in words, as `TrialApplied` has it."""
        outside = (*self.settings, *self.compile_options, *self.arguments, *self.padded)
        parts = (*outside, *self.sources)
        stance = () if self.stance is None else (describe_stance(self.stance),)
        seed = () if self.seed is None else (describe_seed(self.seed),)
        return (*(part.label for part in parts), *stance, *seed)


def describe_stance(stance: str) -> str:
    """Describe a stance for the whole run, as `TrialApplied` has it."""
    return f"stance {stance}"


def describe_seed(seed: int) -> str:
    """Describe a seed, as `TrialApplied` has it."""
    return f"seed {seed}"


@event
class TrialApplied(Event):
    """Outcome of a part of the plan, each outcome once. A part that nothing in the process
    came to has none: it was not applied."""

    change: str
    """Which, in words: "torch._dynamo.config.recompile_limit = 12"."""
    problem: str | None = None
    """Why it was not applied; None when it was."""


@dataclass(frozen=True, slots=True)
class SampledValue:
    """One value of an output or of a module's state."""

    path: str
    """Where it lies: "[0]", ".logits", "['loss']"; empty for the value itself."""
    kind: str
    """"tensor", "number", "other"."""
    dtype: str = ""
    """"float32", "int64"; of a number "int", "float" or "bool"; of others the type's name."""
    shape: tuple[int, ...] = ()
    values: tuple[float | None, ...] = ()
    """A fixed, evenly spread sample of the elements; None for one that is not finite."""
    norm: float | None = None
    """Euclidean, of all finite elements, in float64."""
    largest: float | None = None
    """Greatest magnitude among the finite elements."""
    not_finite: int = 0
    digest: str = ""
    """Of all elements' bytes, of the number, or of the text of others: equal means bit for bit."""
    weighted: float | None = None
    """Sum of all finite elements, each with a weight and a sign by its place, in float64."""


MAIN = "__main__"
"""Stands for the object in the record of what the names of the program's module hold."""


@event
class StateRead(Event):
    """Values of an object that a compiled function reaches: parameters, buffers and plain
    attributes (numbers, texts, flags, and lists of them). What is too much for one record follows
    in further ones of the same object."""

    module: str
    """Type of the object, qualified by what it is defined in."""
    answers: tuple[SampledValue, ...]
    complete: bool = True
    instance: int = 0
    """Which of the objects of this type, in the order in which calls came to them."""
    saved: tuple[str, ...] = ()
    """Keys of the `state_dict()` of a module when the process ends, in the first record of it."""


@event
class RandomStateRead(Event):
    """State of random generators when the process ends: the randomness that the program drew."""

    digests: tuple[tuple[str, str], ...]
    """Generator ("random", "numpy", "torch", "cuda:0") and digest of its state."""


@event
class CallsTimed(Event):
    """Outermost calls of compiled callables, as far as they were timed since the last such record;
    one entry a callable and step in the tuples after `functions`, which are parallel."""

    functions: tuple[Location, ...]
    callables: tuple[int, ...]
    """Positions in `functions`."""
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    seconds: tuple[float, ...]
    """On the host, added up over the calls of the step; compiling is in them."""
    on_device: bool = False
    """A CUDA device was in use: a call may return before its work is done."""
