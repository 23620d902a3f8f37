"""What an observer could do that a program can see, for each item that is compared.

It is done to a program of `plain_programs.py` before that begins; a comparison that finds no
difference then compares nothing. torch is imported where something is done, not where it is named.
"""

import gc
import importlib
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Item = tuple[str, ...]


class Disturbance(NamedTuple):
    """One thing done, and every item that then differs."""

    plant: Callable[[], Any]
    items: tuple[Item, ...]


def by(plant: Callable[[], Any], *items: Item) -> Disturbance:
    return Disturbance(plant, items)


def nothing(*_: Any) -> None:
    """What hooks do."""


class Filter(logging.Filter):
    pass


class Logger(logging.Logger):
    pass


class Record(logging.LogRecord):
    pass


held: list[Any] = []
"""Kept alive."""


def module(name: str = "torch") -> Any:
    """Of torch, imported when something is done to it."""
    return importlib.import_module(name)


def log_state() -> Any:
    return module("torch._logging._internal").log_state


def torchs(name: str) -> logging.Logger:
    return logging.getLogger(f"torch.{name}")


def replace_a_method_of_loggers() -> None:
    original = logging.Logger.handle

    def handle(self: logging.Logger, record: logging.LogRecord) -> None:
        original(self, record)

    logging.Logger.handle = handle  # type: ignore[method-assign]


def log_while_torch_asks() -> None:
    """A record more for whoever listens."""
    from torch._dynamo import guards

    ask = guards.get_and_maybe_log_recompilation_reasons

    def asked(*args: Any, **kwargs: Any) -> Any:
        logging.getLogger("torch._dynamo").error("asked")
        return ask(*args, **kwargs)

    sys.modules["torch._dynamo.convert_frame"].get_and_maybe_log_recompilation_reasons = asked  # type: ignore[attr-defined]


def call_around_backward() -> None:
    """A function below `loss.backward()`, which in compiled code is a frame for Dynamo."""
    import torch

    backward = torch.autograd.backward

    def around(*args: Any, **kwargs: Any) -> Any:
        return backward(*args, **kwargs)

    torch.autograd.backward = around


def compile_something() -> None:
    import torch

    held.append(torch.compile(lambda x: x + 1, backend="eager"))
    held[-1](torch.ones(1))


def hook_compiles() -> None:
    from torch._dynamo.callback import callback_handler

    callback_handler.register_start_callback(nothing)
    callback_handler.register_end_callback(nothing)


def begin_a_mode() -> None:
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            return func(*args, **(kwargs or {}))

    Mode().__enter__()


def wait_in_a_thread() -> None:
    threading.Thread(target=threading.Event().wait, name="waiting", daemon=True).start()


def print_something() -> None:
    print("hello")
    print("hello", file=sys.stderr)


def begin_with_other_weights() -> None:
    import torch

    seeded = torch.manual_seed
    torch.manual_seed = lambda seed: seeded(seed + 1)


def end_in_step() -> None:
    import torch

    def step(*_: Any, **__: Any) -> None:
        raise SystemExit(9)

    torch.optim.SGD.step = step  # type: ignore[method-assign]


HANDLER = by(
    lambda: torchs("_dynamo").addHandler(logging.NullHandler()),
    ("loggers", "torch._dynamo", "handlers"),
    ("logging", "handlers alive"),
)
FRAME = by(
    call_around_backward, ("counters", "frames", "total"), ("counters", "frames", "ok"),
    ("offered",), ("codes",), ("metrics",),
)  # fmt: skip
# Where `step` is compiled, Dynamo traces the hook and guards on it.
HOOK = by(
    lambda: module("torch.optim.optimizer").register_optimizer_step_post_hook(nothing),
    ("hooks", "torch.optim.optimizer._global_optimizer_post_hooks"), ("met",),
    ("metrics",), ("counters",), ("offered",), ("codes",),
)  # fmt: skip
COMPILE = by(
    compile_something, ("metrics",), ("counters",), ("phases",), ("caches",), ("codes",),
    ("codes made",), ("offered",), ("frame counter",), ("torch", "tensors alive"),
)  # fmt: skip
READ = by(lambda: module().ones(1).item(), ("reads",))

OTHERS: tuple[Disturbance, ...] = (
    by(lambda: logging.root.addHandler(logging.NullHandler()), ("loggers", "root", "has handlers")),
    by(
        lambda: torchs("_functorch.aot_autograd").addFilter(Filter()),
        ("loggers", "torch._functorch.aot_autograd", "filters"),
    ),
    by(
        lambda: torchs("_inductor").setLevel(logging.DEBUG),
        ("loggers", "torch._inductor", "level"),
        ("loggers", "torch._inductor.remote_cache", "effective level"),
    ),
    by(
        lambda: setattr(torchs("export"), "propagate", True),
        ("loggers", "torch.export", "propagate"),
    ),
    by(
        lambda: setattr(torchs("distributed"), "disabled", True),
        ("loggers", "torch.distributed", "disabled"),
    ),
    by(
        lambda: setattr(torchs("onnx"), "addHandler", nothing),
        ("loggers", "torch.onnx", "attributes"),
    ),
    by(lambda: torchs("new"), ("loggers", "torch.new")),
    by(lambda: logging.setLogRecordFactory(Record), ("logging", "record factory")),
    by(lambda: logging.setLoggerClass(Logger), ("logging", "logger class")),
    by(lambda: logging.disable(logging.DEBUG), ("logging", "disable")),
    by(lambda: held.append(logging.NullHandler()), ("logging", "handlers alive")),
    by(replace_a_method_of_loggers, ("logging", "replaced", "Logger.handle")),
    by(
        lambda: log_state().enable_log(["torch._export"], logging.INFO),
        ("torch_logs", "levels", "torch._export"),
    ),
    by(lambda: log_state().enable_artifact("recompiles"), ("torch_logs", "artifacts")),
    by(
        lambda: module("torch._dynamo.utils").set_compilation_metrics_limit(1000), ("metrics kept",)
    ),
    by(
        lambda: module("torch.nn.modules.module").register_module_forward_hook(nothing),
        ("hooks", "torch.nn.modules.module._global_forward_hooks"),
    ),
    by(
        lambda: module("torch._dynamo.convert_frame").register_bytecode_hook(nothing),
        ("hooks", "bytecode"),
    ),
    by(hook_compiles, ("hooks", "compile begins"), ("hooks", "compile ends")),
    by(begin_a_mode, ("hooks", "function modes")),
    by(
        lambda: setattr(module("torch._dynamo.config"), "recompile_limit", 9),
        ("config", "_dynamo", "recompile_limit"),
    ),
    by(lambda: held.append(module().ones(1)), ("torch", "tensors alive")),
    by(lambda: module().set_num_threads(module().get_num_threads() + 1), ("torch", "threads")),
    by(random.random, ("process", "random")),
    by(lambda: setattr(sys, "excepthook", nothing), ("process", "excepthook")),
    by(lambda: sys.settrace(nothing), ("process", "trace function")),
    by(lambda: sys.setprofile(nothing), ("process", "profile function")),
    by(wait_in_a_thread, ("process", "threads")),
    by(
        lambda: signal.signal(signal.SIGUSR1, nothing),
        ("process", "signals", str(int(signal.SIGUSR1))),
    ),
    by(lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 1000, 1000), ("process", "timers")),
    by(lambda: gc.callbacks.append(nothing), ("process", "collector callbacks")),
    by(lambda: gc.set_threshold(701), ("process", "collector")),
    by(lambda: warnings.simplefilter("ignore"), ("process", "warnings")),
    by(lambda: sys.path.append("/nowhere"), ("process", "path")),
    by(lambda: os.environ.update(OURS="1"), ("process", "variables", "OURS")),
    by(print_something, ("out",), ("err",)),
)
"""Each has an item of its own, so that one process shows them all."""

GROUPS: Mapping[str, tuple[Disturbance, ...]] = {
    "sgd+nothing": (),
    "threads+nothing": (),
    "torch_logs_of_everything+nothing": (),
    "sgd+handler": (HANDLER,),
    "compiled_update+frame": (FRAME,),
    "compiled_update+hook": (HOOK,),
    "sgd+compile": (COMPILE,),
    "sgd+read": (READ,),
    "sgd+others": OTHERS,
    "sgd+weights": (by(begin_with_other_weights, ("result",)),),
    "sgd+end": (by(end_in_step, ("exit code",)),),
    "wrapped_handlers+record": (
        by(log_while_torch_asks, ("result",)),
        by(lambda: module().rand(1), ("torch", "random")),
    ),
}
"""What `plain_driver.py` runs: a program, and what is done to it."""
