"""The probe over programs that only tests know: variants, caches, wrong input, and what is left."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import jsonschema
import pytest
from probed_programs import Program, option
from receipt_schema import json_schema

from compilediag.extensions.cadence.plan import parse_groups
from compilediag.extensions.cadence.probe import probe
from compilediag.receipt.file import read_receipt
from compilediag.receipt.schema.cadence import CadenceSection
from compilediag.runs.supervised.child import Outcome
from compilediag.runs.supervised.run import CACHE_VARIABLES
from compilediag.runs.supervised.run_options import RunOptions

Environ = Mapping[str, str]


class Probing:
    """Runs probes of planned programs in a folder, and remembers what each variant was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.given: list[tuple[list[str], dict[str, str]]] = []
        self.announced: list[str] = []

    def __call__(
        self,
        program: Program,
        *groups: str,
        words: Sequence[str] = ("model.py",),
        options: RunOptions | None = None,
        **changes: bool,
    ) -> tuple[Outcome, CadenceSection]:
        def run(words: Sequence[str], options: RunOptions, environ: Environ) -> Outcome:
            self.given.append((list(words), dict(environ)))
            return program.run(words, options, environ)

        self._monkeypatch.setattr(import_module("compilediag.runs.supervised.run"), "run", run)
        Path("model.py").write_text("")
        outcome = probe(
            words,
            replace(options or RunOptions(), **changes),
            parse_groups(groups, {}),
            lambda number, total, variant: self.announced.append(variant.name),
            {"HOME": "/home/user"},
        )
        assert outcome.receipt.cadence is not None
        return outcome, outcome.receipt.cadence


@pytest.fixture
def probing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Probing:
    monkeypatch.chdir(tmp_path)
    return Probing(monkeypatch)


TWO = Program({"entropy": 4, "norms": 6})


def test_costs_are_attributed(probing: Probing) -> None:
    """Compile and metric, first hit and recurring; the collision compiles twice in one step here,
    and costs the sum."""
    _, found = probing(TWO)
    for item in found.attribution:
        assert item.first_hit is not None
        assert item.compile_s == pytest.approx(0.5)
        assert item.first_hit_s == pytest.approx(0.505, rel=0.02)
        assert item.recurring_s == pytest.approx(5e-3, rel=0.05)
        assert (item.recurring.compile_s, item.sync_s, item.recompiles) == (0.0, None, 1)
        assert item.fires >= 3
        assert (item.problem, item.fires_from) == (None, "told")
    assert found.collision.recurring.total_s == pytest.approx(10e-3, rel=0.05)
    assert found.collision.extra_recurring_s is None
    assert found.collision.extra_recompiles == 0


def test_a_program_that_resumes_fires_in_the_same_steps(probing: Probing) -> None:
    """The probe reckons in the program's own numbers."""
    _, found = probing(Program({"entropy": 4}, first_number=12_000))
    alone = next(item for item in found.variants if item.kind == "alone")
    fires = alone.fires["entropy"]
    assert len(fires) == found.attribution[0].fires >= 3
    assert fires[0] > found.warmup


def test_caches_are_new_for_each_variant_and_gone_after(probing: Probing) -> None:
    """And where they are kept, the environment is the user's."""
    _, found = probing(TWO)
    assert found.caches == "fresh"
    for name in CACHE_VARIABLES:
        folders = [environ[name] for _, environ in probing.given]
        assert len(set(folders)) == len(folders) == 5
        assert not any(os.path.exists(os.path.dirname(folder)) for folder in folders)
    probing.given.clear()
    _, found = probing(TWO, keep_caches=True)
    assert found.caches == "kept"
    assert not any(set(CACHE_VARIABLES) & set(env) for _, env in probing.given)


def test_the_configured_variant_is_the_program_as_it_is(probing: Probing) -> None:
    """No variable and no argument of ours is in it but the caches."""
    probing(TWO, words=("model.py", "--lr", "1"))
    words, environ = probing.given[0]
    assert words == ["model.py", "--lr", "1"]
    assert set(environ) == {"HOME", *CACHE_VARIABLES}


def test_an_unmodified_program_is_moved_from_outside(probing: Probing) -> None:
    """Arguments and variables, in one probe; what is off has a period beyond the last step."""
    program = Program(
        reads=lambda words, env: {
            "entropy": option(words, "--entropy-every", 250),
            "norms": int(env.get("NORMS_EVERY", "500")),
        }
    )
    _, found = probing(program, "entropy=--entropy-every {n}", "norms=env:NORMS_EVERY={n}")
    assert [item.origin for item in found.groups] == ["argument", "environment"]
    periods = [
        (option(words, "--entropy-every", 0), int(env.get("NORMS_EVERY", "0")))
        for words, env in probing.given
    ]
    off, every = max(periods[1]), found.attribution[0].every
    assert periods == [(0, 0), (off, off), (every, off), (off, every), (every, every)]
    assert off > 1_000_000
    for item in found.attribution:
        assert item.fires_from == "step times"
        assert item.recurring_s == pytest.approx(5e-3, rel=0.05)
        assert item.compile_s == pytest.approx(0.5)


def test_without_groups_the_period_is_found(probing: Probing) -> None:
    """One run is enough to name the rhythm of an unknown metric."""
    outcome, found = probing(Program(reads=lambda words, env: {"log": 7}))
    assert [item.kind for item in found.variants] == ["configured"]
    assert [(item.every, item.variant) for item in found.periods] == [(7, "configured")]
    assert (outcome.exit_code, found.longest_period) == (0, 14)


def test_a_variant_that_crashes_leaves_the_others(probing: Probing) -> None:
    """Its status and reason are in the receipt, and the exit code is the configured one's."""
    crash = lambda words, env: (
        "failed" if env.get("COMPILEDIAG_CADENCE_ENTROPY", "off") not in ("off", "") else "complete"
    )
    outcome, found = probing(Program({"entropy": 4, "norms": 6}, status=crash))
    problems = {item.name: item.problem for item in found.variants}
    assert problems["entropy"] == "failed with exit code 1 after 20 steps: RuntimeError: planted"
    assert problems["norms"] is None
    assert found.attribution[1].recurring_s == pytest.approx(5e-3, rel=0.05)
    assert outcome.exit_code == 0


def test_the_configured_variants_failure_is_the_probes(probing: Probing) -> None:
    """With enough steps before it the others still run."""
    fails = lambda words, env: "complete" if "COMPILEDIAG_CADENCE_A" in env else "failed"
    outcome, found = probing(Program({"a": 4}, status=fails))
    assert outcome.exit_code == 1
    assert outcome.receipt.status == "failed"
    assert [item.kind for item in found.variants] == ["configured", "control", "alone"]


@pytest.mark.parametrize(
    ("program", "groups", "message"),
    [
        (Program({"entropy": 4}, steps=9), (), "the program made 9 steps"),
        (Program({"entropy": 4}, steps=0), (), "no step was seen"),
        (Program({"entropy": 4}), ("loss",), "the code declares no group named 'loss'"),
        (Program({"entropy": 4}), ("entropy=--x {n}",), "declares a group named 'entropy' itself"),
        (Program({"a b": 4, "a-b": 5}), (), "are moved by the same variable"),
        (Program({"entropy": 4}, asked=False), (), "group 'entropy' never fired: due() was never"),
    ],
)
def test_wrong_input_ends_with_2_and_loses_nothing(program, groups, message, probing) -> None:
    """What did run is in a receipt that can be shown, with the reason in it."""
    outcome, found = probing(program, *groups)
    assert outcome.exit_code == 2
    assert any(message in note for note in outcome.notes)
    assert any(message in note for note in found.notes)
    assert outcome.receipt_path is not None
    assert read_receipt().cadence == found
    assert found.variants[0].receipt is not None


def test_interrupting_ends_the_probe(probing: Probing) -> None:
    """Ctrl-C in one variant does not start the next."""
    stop = lambda words, env: (
        "interrupted" if env.get("COMPILEDIAG_CADENCE_NORMS") == "off" else "complete"
    )
    _, found = probing(Program({"entropy": 4, "norms": 6}, status=stop))
    assert [item.kind for item in found.variants] == ["configured", "control"]
    assert "interrupted in the variant control" in found.notes[0]


def test_the_receipt_is_the_configured_variants_with_the_probe_in_it(probing: Probing) -> None:
    """Valid for an independent validator, found as the latest, its files found from where it is."""
    outcome, found = probing(TWO)
    assert outcome.receipt_path is not None
    raw = json.loads(Path(outcome.receipt_path).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(json_schema()).validate(raw)
    assert read_receipt().cadence == found
    assert raw["header"]["run"]["run_id"] == Path(outcome.run_dir).name
    assert raw["compile"]["recompiles"] == 2
    assert found.variants[0].counts.recompiles == 2


def test_secrets_in_settings_are_redacted(probing: Probing) -> None:
    """Arguments of the target stand in the settings of a variant."""
    words = ("model.py", "--token", "hf_abcdefghijklmnopqrstuvwxyz0123456789")
    outcome, _ = probing(Program(), "a=--a {n}", words=words)
    assert outcome.receipt_path is not None
    assert "hf_abcdefghij" not in Path(outcome.receipt_path).read_text(encoding="utf-8")
