"""Precision of the recipes that are printed: random programs are diagnosed, each recipe is followed
to the letter, and torch counts what compiles again.

    python -m tools.advice --first 0 --count 150 --out build/advice.json
"""

# torch's own counters and logs are private.
# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import re
import sys
import tempfile
import types
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch
from torch._dynamo import utils

import compilediag
from compilediag.diagnosis.findings import Finding
from tools.advice.following import NotMechanical, follow
from tools.advice.programs import Program, generate


class Outcome:
    """A run of a program as torch counts it."""

    def __init__(self, path: Path, text: str, variables: dict[str, str]) -> None:
        self.results: Any = None
        self.error = ""
        module = _make_module(path, text)
        torch._dynamo.reset()
        utils.clear_compilation_metrics()
        utils.counters.clear()
        sources = torch.compiler.config.dynamic_sources
        torch.compiler.config.dynamic_sources = variables.get("TORCH_COMPILE_DYNAMIC_SOURCES", "")
        shapes = "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS" in variables
        torch._dynamo.config.capture_dynamic_output_shape_ops = shapes
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                _load(module, text, path)
                self.results = module.main()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}".split("\n")[0][:200]
        torch.compiler.config.dynamic_sources = sources
        config = torch._dynamo.config
        config.reorderable_logging_functions = set()
        self.reasons = [
            row.recompile_reason for row in utils.get_compilation_metrics() if row.recompile_reason
        ]
        self.breaks = sum(utils.counters["graph_break"].values())


def _make_module(path: Path, text: str) -> types.ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    return module


def _load(module: types.ModuleType, text: str, path: Path) -> None:
    exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102 - a program of ours


def diagnose(path: Path, text: str) -> list[Finding]:
    """Diagnose a program in this process."""
    module = _make_module(path, text)
    torch._dynamo.reset()
    with contextlib.redirect_stdout(io.StringIO()), compilediag.watch() as seen:
        _load(module, text, path)
        module.main()
    return [item for item in seen.findings if item.severity != "info" and item.rule < "CD3"]


def is_same(before: Any, after: Any) -> bool:
    """True where both runs gave the same values, but for their last digits."""
    if type(before) is not type(after) and not isinstance(before, torch.Tensor):
        return False
    if type(before) in (list, tuple):
        return len(before) == len(after) and all(map(is_same, before, after))
    if isinstance(before, torch.Tensor):
        close = torch.allclose(before, after, 1e-5, 1e-6, equal_nan=True)
        return before.dtype == after.dtype and close
    return bool(before == after)


def judge(before: Outcome, after: Outcome, finding: Finding) -> str:
    """Judge a recipe by what torch counts without and with it."""
    if after.error:
        return f"crash: {after.error}"
    if not is_same(before.results, after.results):
        return "other results"
    if finding.rule.startswith("CD2"):
        return "cured" if after.breaks < before.breaks else "no effect"
    if len(after.reasons) >= len(before.reasons):
        return f"no effect: {after.reasons[0].splitlines()[0][:150]}"
    if after.breaks > before.breaks and "break" not in (finding.fix.caveat or ""):
        return "more breaks"
    left = len(before.reasons) - len(after.reasons)
    return "cured" if left >= finding.count or not after.reasons else "half"


def _order(finding: Finding) -> tuple[bool, int]:
    adds = finding.fix.recipe in ("mark_dynamic", "first_call_eager", "dynamic_growth")
    places = [int(number) for number in re.findall(r"\.py:(\d+)", finding.fix.summary)]
    return adds, -max(places, default=0)


def run_program(program: Program, folder: Path) -> list[dict[str, Any]]:
    """Run a program, follow each of its recipes, and say what came of it."""
    number = program.name.split()[0]
    before = Outcome(folder / f"p{number}_before.py", program.text, {})
    if before.error:
        return [{"program": program.name, "verdict": "", "said": before.error, "recipe": "broken"}]
    path = folder / f"p{number}.py"
    findings = diagnose(path, program.text)
    causes = [item for item in findings if item.rule < "CD120" or item.rule > "CD199"]
    rows: list[dict[str, Any]] = []
    for index, finding in enumerate(causes):
        recipe, said = finding.fix.recipe, finding.fix.summary
        row = {"program": program.name, "rule": finding.rule, "recipe": recipe, "said": said}
        row |= {"caveat": finding.fix.caveat, "verdict": ""}
        rows.append(row)
        if recipe is None:
            continue
        try:
            together = "alone" in (finding.fix.caveat or "")
            chosen = [f for f in causes if f.fix.recipe] if together else [finding]
            text, variables = program.text, dict[str, str]()
            # What adds lines comes last, from the last line on: places stay those of the sentences.
            for part in sorted(chosen, key=_order):
                text, more = follow(text, part)
                variables |= {
                    name: ",".join(filter(None, (variables.get(name), value)))
                    for name, value in more.items()
                }
        except NotMechanical as error:
            row["verdict"] = f"by hand: {error}"
            continue
        after = Outcome(folder / f"p{number}_after{index}.py", text, variables)
        row["verdict"] = judge(before, after, finding)
    return rows


def main() -> None:
    """Run the campaign and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path("build/advice.json"))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch._logging.set_logs(dynamo=logging.CRITICAL)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + options.count):
            rows += run_program(generate(seed), Path(folder))
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1))
    table: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        table[row["recipe"] or "none"][row["verdict"].split(":")[0]] += 1
        if row["recipe"] and row["verdict"] != "cured":
            print(
                row["program"],
                "|",
                row.get("rule"),
                row["recipe"],
                "|",
                row["said"],
                "|",
                row["verdict"],
            )
    for recipe, verdicts in sorted(table.items()):
        print(f"{recipe:20}", dict(verdicts))


if __name__ == "__main__":
    main()
