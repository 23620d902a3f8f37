"""What a process can see of itself, of `logging` and of torch, as JSON that can be compared.

Nothing of compilediag is imported. `Recorder` notes, from its start on, what leaves no trace: which
frames and functions Dynamo is offered, and reads of tensors. What differs between two plain runs of
the same program is left out by rule: times, addresses and other long numbers.
"""

import dataclasses
import gc
import hashlib
import logging
import os
import random
import re
import signal
import sys
import threading
import types
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

State = dict[str, Any]

_TIMES = re.compile(r"(_us|_s|_ms|start_time)$")
"""Names of the fields of compilation metrics that are measured."""

_NUMBERS = (
    (re.compile(r"0x[0-9a-f]+"), "0x#"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}\b"), "#"),
    (re.compile(r"(?<!\d)\d{9,}(?!\d)"), "#"),  # addresses, and times since the epoch
    (re.compile(r"(___dict_version\(.*\)) == \d+"), r"\1 == #"),  # how many dicts were changed
    (re.compile(r"/tmp[a-z0-9_]{8}\b"), "/tmp#"),
    (re.compile(r"\b([VDIWE])\d{4} [\d:.]+ \d+ "), r"\1# "),  # torch's prefix: day, time, process
    (re.compile(r"\b\d{4}-\d\d-\d\d [\d:]+ \d+:\d+\b"), "#"),  # kineto's: time, process
    (re.compile(r", \d+\.\d{4}\b|\d+\.\d+ us\b"), "#"),  # times that torch has logged
)

_Logger = logging.Logger
"""Before a program puts another class in its place."""


def scrubbed(text: str) -> str:
    """A text without numbers that differ between two runs of a program."""
    for pattern, put in _NUMBERS:
        text = pattern.sub(put, text)
    return text


def plain(value: Any) -> Any:
    """A value as JSON has it; of what JSON has not its text; always in the same order."""
    if isinstance(value, float) and value != value:
        return "nan"  # which equals nothing
    if value is None or isinstance(value, bool | int | float):
        return value if not isinstance(value, int) or abs(value) < 10**9 else "#"
    if isinstance(value, Mapping):
        return {scrubbed(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(scrubbed(str(item)) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return scrubbed(str(value))


def is_of_dynamo(code: Any) -> bool:
    """Whether code is Dynamo's own, which it never compiles, and is offered when a weak reference
    that it keeps of a tensor dies: a moment that two plain runs may have elsewhere too."""
    return "/torch/_dynamo/" in code.co_filename


class Recorder:
    """Notes what torch is asked to do, without a frame of its own in what torch then looks at."""

    def __init__(self) -> None:
        self.offered: list[str] = []
        """Frames that Dynamo was called with, whatever it did with them."""
        self.met: list[str] = []
        """Functions that it met in code that it traced, inlined or not."""
        self.reads = 0
        """Tensors that were made Python numbers: synchronisations, were they on a device."""
        self._library: Any = None

    def start(self) -> None:
        """Puts itself in front of the two questions that Dynamo asks first, and below `item`."""
        import torch
        from torch._dynamo import guards, trace_rules

        # torch empties the processor's caches to time the guards of a compile: 50 ms each.
        guards.profile_guard_manager = lambda *_: 0.0
        # Called and gone before Dynamo converts: a function around the conversion itself would be
        # a frame that torch finds when it looks who called.
        asked, inlined = trace_rules.check, trace_rules.check_verbose

        def check(code: Any, *args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_code
            if caller.co_name == "__call__" and caller.co_filename.endswith("convert_frame.py"):
                self.offered += [] if is_of_dynamo(code) else [place(code)]
            return asked(code, *args, **kwargs)

        def check_verbose(function: Any, *args: Any, **kwargs: Any) -> Any:
            if sys._getframe(1).f_code.co_name == "check_inlineable":
                self.met.append(place(function.get_code()))
            return inlined(function, *args, **kwargs)

        def read(tensor: Any) -> Any:
            self.reads += 1
            number = tensor.tolist()
            while isinstance(number, list):
                (number,) = number
            return number

        trace_rules.check, trace_rules.check_verbose = check, check_verbose
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it takes the place of torch's own: it shall
            self._library.impl("_local_scalar_dense", read, "CPU")
        native: Any = torch._C._dynamo.eval_frame
        skip = native._FrameExecStrategy(native._FrameAction.SKIP, native._FrameAction.SKIP)
        for function in (check, check_verbose, read, place, scrubbed, is_of_dynamo):
            native.set_code_exec_strategy(function.__code__, skip)

    def forget(self) -> None:
        """What was noted so far."""
        self.offered, self.met, self.reads = [], [], 0

    def state(self) -> State:
        # In no order: an import asks one finder more, ours, before torch's frames go on.
        return {"offered": sorted(self.offered), "met": self.met, "reads": self.reads}


def place(code: types.CodeType) -> str:
    """Where code stands."""
    return f"{scrubbed(code.co_filename)}:{code.co_firstlineno} {code.co_name}"


def look() -> State:
    """Everything that can be compared, by subject; without what a `Recorder` has noted."""
    state: State = {"loggers": loggers(), "logging": logging_module(), "process": process()}
    if "torch" in sys.modules:
        state["torch"] = torch_state()
        state["hooks"] = hooks()
        state["torch_logs"] = torch_logs()
    if "torch._dynamo.utils" in sys.modules:
        state.update(dynamo())
        state["config"] = configurations()
    return state


# --- logging --------------------------------------------------------------------------------------


def loggers() -> State:
    """The root logger, and all that torch or a program has made."""
    # Not those of the standard library, which come with the modules that a process has imported.
    made = {
        name: one
        for name, one in sorted(logging.root.manager.loggerDict.items())
        if isinstance(one, _Logger) and name.partition(".")[0] not in sys.stdlib_module_names
    }
    return {name: logger(one) for name, one in [("root", logging.root), *made.items()]}


def logger(one: logging.Logger) -> State:
    return {
        "level": one.level,
        "effective level": one.getEffectiveLevel(),
        "handlers": [handler(item) for item in one.handlers],
        "filters": [named(item) for item in one.filters],
        "propagate": one.propagate,
        "disabled": one.disabled,
        "has handlers": one.hasHandlers(),
        "class": named(type(one)),
        "attributes": sorted(vars(one)),
    }


def handler(one: logging.Handler) -> State:
    return {
        "class": named(type(one)),
        "level": one.level,
        "filters": [named(item) for item in one.filters],
        "formatter": named(one.formatter),
        "emit": named(one.emit),
    }


def logging_module() -> State:
    """What is global in `logging`, and which of its functions are not those of the library."""
    owners = (logging, _Logger, logging.Handler, logging.StreamHandler, logging.Manager)
    owners += (logging.LogRecord, logging.Filterer, logging.Formatter, type(logging.root))
    replaced = {
        f"{owner.__name__}.{name}": named(item)
        for owner in owners
        for name, item in vars(owner).items()
        if isinstance(item, types.FunctionType)
        and not item.__code__.co_filename.endswith(os.path.join("logging", "__init__.py"))
    }
    alive = [ref() for ref in logging._handlerList]
    return {
        "record factory": named(logging.getLogRecordFactory()),
        "disable": logging.root.manager.disable,
        "logger class": named(logging.getLoggerClass()),
        "class of the manager": named(logging.root.manager.loggerClass),
        "handlers alive": sorted(named(type(one)) for one in alive if one is not None),
        "replaced": replaced,
        "raise exceptions": logging.raiseExceptions,
    }


def torch_logs() -> State:
    """torch's own log state."""
    from torch._logging import _internal

    registry, state = _internal.log_registry, _internal.log_state
    return {
        "levels": plain(state.log_qname_to_level),
        "artifacts": sorted(state.artifact_names),
        "loggers": sorted(registry.get_log_qnames()),
        "artifact loggers": sorted(registry.get_artifact_log_qnames()),
        "trace folder": plain(getattr(_internal.LOG_TRACE_HANDLER, "root_dir", None)),
    }


# --- Dynamo ---------------------------------------------------------------------------------------


def dynamo() -> State:
    """torch's totals, its row for each compile, which code it was called with, and its caches."""
    from torch._dynamo import convert_frame, utils

    rows = utils.get_compilation_metrics()
    seen = [code for ref in convert_frame.input_codes.seen if (code := ref()) is not None]
    made = [code for ref in convert_frame.output_codes.seen if (code := ref()) is not None]
    return {
        "counters": {name: plain(counted) for name, counted in utils.counters.items() if counted},
        "metrics": [row(one) for one in rows],
        "metrics kept": utils._compilation_metrics.maxlen,
        "phases": {name: len(times) for name, times in utils.compilation_time_metrics.items()},
        "codes": sorted(place(code) for code in seen if not is_of_dynamo(code)),
        "codes made": [place(code) for code in made],
        "caches": caches(seen),
        "frame counter": convert_frame.FRAME_COUNTER,
    }


def row(one: Any) -> State:
    """A row of torch's compilation metrics, without what was measured."""
    return {
        field.name: plain(getattr(one, field.name))
        for field in dataclasses.fields(one)
        if not _TIMES.search(field.name)
    }


def caches(codes: Iterable[types.CodeType]) -> State:
    """The guards of every cache entry."""
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

    return {
        place(code): [
            [str(entry.compile_id), *scrubbed(str(entry.guard_manager)).splitlines()]
            for entry in entries
        ]
        for code in codes
        if (entries := _debug_get_cache_entry_list(code))
    }


def configurations() -> State:
    """The options of Dynamo and of what is loaded below it."""
    names = ("_dynamo", "_functorch", "_inductor", "fx.experimental._config")
    found: State = {}
    for name in names:
        full = f"torch.{name}" if "config" in name else f"torch.{name}.config"
        module = sys.modules.get(full)
        if module is not None:
            copied: Mapping[str, Any] = module.get_config_copy()
            found[name] = {key: plain(value) for key, value in sorted(copied.items())}
    return found


def hooks() -> State:
    """Functions that torch calls for everyone, and modes in force."""
    from torch import overrides
    from torch.nn.modules import module
    from torch.utils import _python_dispatch as dispatch

    optimizers = sys.modules["torch.optim.optimizer"]
    found: State = {
        f"{owner.__name__}.{name}": len(value)
        for owner in (optimizers, module)
        for name, value in sorted(vars(owner).items())
        if name.startswith("_global_") and isinstance(value, Mapping)
    }
    found["function modes"] = [named(type(m)) for m in overrides._get_current_function_mode_stack()]
    found["dispatch modes"] = [named(type(m)) for m in dispatch._get_current_dispatch_mode_stack()]
    if "torch._dynamo.convert_frame" in sys.modules:
        callbacks = sys.modules["torch._dynamo.callback"].callback_handler
        found["compile begins"] = len(callbacks.start_callbacks)
        found["compile ends"] = len(callbacks.end_callbacks)
        found["bytecode"] = len(sys.modules["torch._dynamo.convert_frame"]._bytecode_hooks)
    return found


# --- the rest of torch, and the process -----------------------------------------------------------


def torch_state() -> State:
    """What every operation depends on."""
    import torch

    return {
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": str(torch.get_default_dtype()),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "profiler": torch.autograd._profiler_enabled(),
        "cuda": torch.cuda.is_initialized(),
        "random": digest(torch.random.get_rng_state().numpy().tobytes()),
        "anomaly": torch.is_anomaly_enabled(),
        # `type` and not `isinstance`, which asks lazy proxies for their class.
        "tensors alive": sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects()),
    }


_SET_BY_RUN = re.compile(r"COMPILEDIAG_|PYTHONPATH$|TORCH_TRACE$|COLUMNS$|LINES$")
"""Variables that attach a process to a run; all others are the program's."""


def process() -> State:
    """What Python keeps for the whole process."""
    return {
        "excepthook": named(sys.excepthook),
        "unraisablehook": named(sys.unraisablehook),
        "threading.excepthook": named(threading.excepthook),
        "displayhook": named(sys.displayhook),
        "trace function": named(sys.gettrace()),
        "profile function": named(sys.getprofile()),
        # The threads of queues, as data loaders have, end some time after their owners.
        "threads": sorted(
            thread.name for thread in threading.enumerate() if thread.name != "QueueFeederThread"
        ),
        "signals": {
            str(number): named(signal.getsignal(number))
            for number in sorted(signal.valid_signals())
        },
        "timers": [signal.getitimer(timer)[1] for timer in (0, 1, 2)],
        "collector callbacks": [named(callback) for callback in gc.callbacks],
        "collector": [gc.isenabled(), *gc.get_threshold(), gc.get_debug()],
        "random": digest(repr(random.getstate()).encode()),
        "warnings": [plain(item) for item in warnings.filters],
        "showwarning": named(warnings.showwarning),
        "path": [scrubbed(entry) for entry in sys.path],
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "folder": os.getcwd(),
        "variables": {k: v for k, v in sorted(os.environ.items()) if not _SET_BY_RUN.match(k)},
        "streams": [named(type(stream)) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "open": named(open),
        "arguments": list(sys.argv),
        "profilers": monitoring(),
    }


def monitoring() -> list[str | None]:
    """The tools of `sys.monitoring`, Python 3.12 and later."""
    tools: Any = getattr(sys, "monitoring", None)
    return [tools.get_tool(number) for number in range(6)] if tools is not None else []


def named(value: Any) -> str | None:
    """A function, class or object by its module and name."""
    if value is None or isinstance(value, int | str):
        return None if value is None else str(value)
    target = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(target, '__module__', '')}.{target.__qualname__}"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


# --- comparing ------------------------------------------------------------------------------------


def differences(one: Any, other: Any, path: tuple[str, ...] = ()) -> list[str]:
    """A sentence for each item that differs: where it stands, what the first has, the second."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        absent = "absent"
        return [
            sentence
            for key in keys
            for sentence in differences(one.get(key, absent), other.get(key, absent), (*path, key))
        ]
    if isinstance(one, list) and isinstance(other, list) and one != other:
        if len(one) == len(other):
            pairs = enumerate(zip(one, other, strict=True))
            return [text for at, (a, b) in pairs for text in differences(a, b, (*path, str(at)))]
        more = _more(one, other)
        return [f"{_where(path)}: {len(one)} plain, {len(other)} observed; {more}"]
    if one == other:
        return []
    return [f"{_where(path)}: {_short(one)} plain, {_short(other)} observed"]


def _more(one: list[Any], other: list[Any]) -> str:
    left = list(other)
    for item in one:
        if item in left:
            left.remove(item)
    gone = list(one)
    for item in other:
        if item in gone:
            gone.remove(item)
    said = [f"only observed: {_short(item)}" for item in left[:4]]
    said += [f"only plain: {_short(item)}" for item in gone[:4]]
    return "; ".join(said)


def _where(path: tuple[str, ...]) -> str:
    return " / ".join(path)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 300 else f"{text[:200]} … {text[-80:]}"
