"""Small training and inference programs, put together at random from pieces that compile badly.

Each piece is known in a form that costs a recompile or a graph break and in forms that do not: a
program with some of its pieces in their good form is a harmless change that improves it, by
construction. Whether torch agrees is for a plain run to say.
"""

from __future__ import annotations

import importlib
import random
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

NAMES = ("gate", "level", "state", "bias", "window", "gain", "mix", "track", "scale", "memory")


@dataclass(frozen=True)
class Program:
    """A program, and a change of it that improves it."""

    seed: int
    before: str
    after: str
    pieces: tuple[str, ...]
    mended: tuple[str, ...]
    """Pieces that are in a good form afterwards."""
    environment: bool
    """The change is a line of settings alone."""


@dataclass(frozen=True)
class Form:
    """Lines of one piece, by where they go; see pieces.toml."""

    top: str = ""
    init: str = ""
    enter: str = ""
    forward: str = ""
    given: str = ""
    before: str = ""
    passed: str = ""
    after: str = ""
    rows: str = ""
    options: str = ""
    setting: bool = False
    """It is a line of settings alone."""
    module_only: bool = False


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a file of data."""
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return toml.loads(path.read_text(encoding="utf-8"))


PIECES: Mapping[str, Sequence[Form]] = {
    name: [Form(**form) for form in forms]
    for name, forms in read_toml(Path(__file__).with_name("pieces.toml")).items()
}
"""By name: first the form that compiles badly."""

SCENARIOS = """
aliasing argument_object beyond_knee break_behind_sizes break_in_loop
break_on_attribute_protocol break_on_context_manager break_on_exception break_on_higher_order_op
break_on_item break_on_operator break_on_print break_on_python_callback break_on_requires_grad
break_on_tensor_condition break_on_unsupported_call breaks_inflated closure_container
container_structure disabled_in_loop dynamic_size filled_attribute flag_and_container
generator_argument global_variable inference_mode instance_variant lazy_buffer logging_disabled
module_attribute number_in_bound object_identity optimizer_state optional_argument
periodic_recompile python_scalar recompile_limit shape_constraint silence_after_limit
size_as_number stored_profile timestep_table two_flags unreadable_guard varied_batches
""".split()  # noqa: SIM905
"""Those whose fixed form prints and holds the same, and is better by torch's counts."""

_SIZES = ("random.choice([4, 5, 6, 7])", "4 + step % $k", "3 + step", "[8, 6, 4, 7][step % 4]")
_LAYERS: Sequence[str] = (
    "h = torch.tanh($layer)",
    "h = F.gelu($layer)",
    "h = h + torch.relu($layer)",
    "h = h * torch.sigmoid($layer)",
    "h = h - F.silu($layer).clamp(-1, 1)",
)
_OPTIMIZERS = (
    "SGD({}, lr=0.1)",
    "SGD({}, lr=0.05, momentum=0.9)",
    "Adam({}, lr=0.01)",
    "AdamW({}, lr=0.02)",
)
_TIMES = (
    " ({(time.time() - began):.3f} s)",
    " | {(time.time() - began) * 1000:.1f} ms",
    " [{1 / (time.time() - began + 1e-3):.1f} it/s]",
)
_MODULE = """class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        $layers
        $init

    def forward(self, x$given):
        $enter
        $body
        return $returned


model = Model()
compiled = torch.compile(model$options)"""
_FUNCTION = """class Cache:
    pass


cache = Cache()
$layers
$init


def forward(x$given):
    $enter
    $body
    return $returned


compiled = torch.compile(forward$options)"""
_HEAD = """import math
import random
import time

import torch
import torch.nn.functional as F

WIDTH, STEPS = 8, $steps
$top


$host
$optimizer
$seeded
$start
for step in range(STEPS):
    x = torch.randn($rows, WIDTH)
    $before
    $call
    $after
    $learn
    $report
$end
"""


def make_program(seed: int) -> Program:
    """Makes the program of a seed, always the same; one of eight is a scenario."""
    rng = random.Random(seed)  # noqa: S311
    if seed % 8 == 7:
        name = SCENARIOS[seed // 8 % len(SCENARIOS)]
        folder = Path(__file__).resolve().parents[2] / "scenarios" / name
        before, after = (
            (folder / f"{state}.py").read_text(encoding="utf-8") for state in ("broken", "fixed")
        )
        return Program(seed, before, after, (name,), (f"scenario {name}",), environment=False)
    frame = _Frame.draw(rng)
    count = rng.choice((1, 1, 2, 2, 3))
    # "batch" as often as anything: nothing else varies so often.
    chosen = rng.sample([*PIECES], count)
    if rng.random() < 0.25 and "batch" not in chosen:
        chosen[0] = "batch"
    words = rng.sample(NAMES, count)
    numbers = [
        {
            "n": word,
            "a": f"{rng.uniform(0.3, 1.6):.2f}",
            "b": f"{rng.uniform(0.2, 1.2):.2f}",
            "k": str(rng.choice((2, 3, 4))),
            "sizes": rng.choice(_SIZES).replace("$k", str(rng.choice((2, 3, 4)))),
        }
        for word in words
    ]
    mended = sorted(rng.sample(range(count), rng.randint(1, count)))
    forms = [PIECES[name][0] for name in chosen]
    good = list(forms)
    for at in mended:
        usable = [
            form for form in PIECES[chosen[at]][1:]
            if not (form.setting and (len(mended) > 1 or rng.random() < 0.5))
            and not (form.module_only and not frame.module)
        ]  # fmt: skip
        good[at] = rng.choice(usable)
    return Program(
        seed,
        frame.render(forms, numbers),
        frame.render(good, numbers),
        tuple(chosen),
        tuple(chosen[at] for at in mended),
        all(good[at].setting for at in mended),
    )


@dataclass(frozen=True)
class _Frame:
    """What is around the pieces."""

    module: bool
    lines: Mapping[str, str]
    layers: Sequence[str]
    backend: str

    @classmethod
    def draw(cls, rng: random.Random) -> _Frame:
        """Chooses it."""
        module, training = rng.random() < 0.7, rng.random() < 0.65
        layers = rng.choices(_LAYERS, k=rng.choice((1, 1, 2, 3)))
        if module and training and rng.random() < 0.2:
            layers.append("h = F.dropout(h, 0.1, self.training)")
        backend = rng.choices(("eager", "aot_eager", "inductor"), (80, 19, 1))[0]
        return cls(module, _draw_lines(rng, training, module), layers, backend)

    def render(self, forms: Sequence[Form], numbers: Sequence[Mapping[str, str]]) -> str:
        """Writes the program with these forms of its pieces."""

        def gather(place: str, joint: str = "\n") -> str:
            texts = (getattr(form, place) for form in forms)
            made = (Template(text).safe_substitute(of) for text, of in zip(texts, numbers))  # noqa: B905
            return joint.join(filter(None, made))

        held = "" if self.module else "cache."
        width = "torch.nn.Linear(WIDTH, WIDTH)"
        linear = [f"self.layer{at} = {width}" for at, text in enumerate(self.layers) if "$" in text]
        body = [text.replace("$layer", f"self.layer{at}(h)") for at, text in enumerate(self.layers)]
        options = "".join(
            f", {text}" for text in (f'backend="{self.backend}"', gather("options", ", ")) if text
        )
        given, passed = gather("given", ", "), gather("passed", ", ")
        inside = {
            "layers": "\n".join(linear),
            "init": gather("init"),
            "enter": gather("enter"),
            "body": "\n".join(filter(None, ["h = x", *body, gather("forward")])),
            "given": f", {given}" if given else "",
            "options": options,
            "returned": self.lines["returned"],
        }
        host = _fill(_MODULE if self.module else _FUNCTION, inside)
        text = _fill(
            _HEAD,
            {
                **self.lines,
                "top": gather("top"),
                "host": host if self.module else host.replace("self.", "cache."),
                "rows": gather("rows", "") or self.lines["size"],
                "before": gather("before").replace("self.", "model." if self.module else held),
                "after": gather("after").replace("self.", "model." if self.module else held),
                "call": self.lines["call"].replace(
                    "$passed",
                    (f", {passed}" if passed else "").replace(
                        "self.", "model." if self.module else held
                    ),
                ),
            },
        )
        return re.sub(r"\n{4,}", "\n\n\n", text)


def _draw_lines(rng: random.Random, training: bool, module: bool) -> dict[str, str]:
    """The lines of a program that its pieces do not touch."""
    parameters = (
        "model.parameters()"
        if module
        else "[p for layer in vars(cache).values() if isinstance(layer, torch.nn.Module)"
        " for p in layer.parameters()]"
    )
    optimizer = f"optimizer = torch.optim.{rng.choice(_OPTIMIZERS).format(parameters)}"
    timed = rng.random() < 0.4
    shown = rng.choice((":.4f", ":.5f", ":.3e", ""))
    value = "loss.item()" if training else rng.choice(("y.sum().item()", "y.abs().mean().item()"))
    name = "loss" if training else rng.choice(("output", "score"))
    report = (
        f'print(f"step {{step}} {name} {{{value}{shown}}}{rng.choice(_TIMES) if timed else ""}")'
    )
    if rng.random() < 0.2:
        report = f"if step % {rng.choice((2, 3))} == 0:\n    {report}"
    reduced = rng.choice(("square().mean()", "abs().mean()", "logsumexp(0).mean()"))
    learn = [f"loss = y.{reduced}", "loss.backward()", "optimizer.step()", "optimizer.zero_grad()"]
    if rng.random() < 0.2:
        learn.insert(2, "torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]['params'], 0.1)")
    if rng.random() < 0.2:
        learn.append("scheduler.step()")
        optimizer += "\nscheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)"
    call = "y = compiled(x$passed)"
    collected = rng.random() < 0.3
    end = [f'print("mean {name}", sum(history) / len(history))'] if collected else []
    if module and rng.random() < 0.3:
        end.append('torch.save(model.state_dict(), "model.pt")')
    if collected:
        report += f"\nhistory.append({value})"
    return {
        "steps": str(rng.randint(7, 11)),
        "optimizer": optimizer if training else "",
        "seeded": f"torch.manual_seed({rng.randint(0, 99)})" if rng.random() < 0.5 else "",
        "start": "\n".join(
            [*(["began = time.time()"] if timed else []), *(["history = []"] if collected else [])]
        ),
        "size": str(rng.choice((3, 4, 6))),
        "call": call if training else f"with torch.no_grad():\n    {call}",
        "learn": "\n".join(learn) if training else "",
        "report": report,
        "end": "\n".join(end),
        "returned": rng.choice(("h", "h", "h * 2", "h - x")),
    }


def _fill(text: str, lines: Mapping[str, str]) -> str:
    """Puts lines in place of `$names`; those of a line that is one name, indented as it is."""
    filled: list[str] = []
    for line in text.split("\n"):
        if found := re.fullmatch(r"( *)\$(\w+)", line):
            block = lines[found[2]]
            filled += [textwrap.indent(block, found[1])] if block else []
        else:
            filled.append(Template(line).safe_substitute(lines))
    return "\n".join(filled)
