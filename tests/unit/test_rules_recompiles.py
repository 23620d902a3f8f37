"""Recompile rules: grouping, cost, place and words; and the register of codes."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import timelines
from false_guards import FLAG, FRAME, HOOK, PE

from compilediag.diagnosis.codes import REGISTER
from compilediag.diagnosis.findings import Finding, Rule, make_place
from compilediag.rules.diagnose import RECOMPILE_RULES
from compilediag.rules.objects import find_lost_effects, find_unguarded_changes
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import EffectLost, EntryDiff, FalseGuard, Location, UnguardedChanged

RULES: tuple[Rule, ...] = (*RECOMPILE_RULES, find_unguarded_changes)
PAGES = Path(__file__).parents[2] / "docs" / "rules"
RECOMPILE_CODES = sorted(code for code in REGISTER if re.fullmatch(r"CD1[01]\d|CD190", code))


def recompile(
    step: int, *guards: FalseGuard, seconds: float = 0.5, produced: bool = True, process: int = 0
) -> Recompile:
    entries = (EntryDiff("0/0", guards),)
    again = timelines.recompile(
        f"0/{step}", step=step, where=FRAME, seconds=seconds, produced=produced, process=process
    )
    return replace(again, entries=entries, reasons=())


def printed(text: str) -> Recompile:
    return replace(timelines.recompile(where=FRAME), entries=(), reasons=(f"0/0: {text}",))


def findings(*recompiles: Recompile) -> list[Finding]:
    timeline = Timeline(recompiles=recompiles, user_roots=("/home/u",))
    return [finding for rule in RULES for finding in rule(timeline)]


def test_one_finding_over_all_steps() -> None:
    """The same flag at steps 3 and 7 is one finding with both steps and the sum of seconds."""
    (finding,) = findings(recompile(3, FLAG), recompile(7, FLAG, seconds=0.25))
    assert (finding.rule, finding.slug, finding.family) == ("CD101", "closure-flag", "closure_flag")
    assert (finding.variable, finding.location, finding.ownership) == (
        "capture",
        make_place(HOOK),
        "user",
    )
    assert (finding.count, finding.steps, finding.cost_s) == (2, (3, 7), 0.75)
    assert finding.evidence["compile_ids"] == ["0/3", "0/7"]
    assert finding.evidence["roles"] == ["primary", "primary"]


def test_of_methods_of_packages_none_is_picked() -> None:
    """By the source alone any of them may have run; where there is one candidate it is named, and
    a line of the program's own beside theirs."""
    package = "/x/site-packages/metrics/metric.py"
    methods = [Location(package, line, f"Metric.{name}") for name, line in (("a", 3), ("b", 9))]
    own = FLAG.writers[0]

    def named(*writers: Location) -> list[str]:
        (finding,) = findings(recompile(1, replace(FLAG, writers=writers)))
        return [item["function"] for item in finding.evidence["writers"]]

    assert named(*methods) == []
    assert named(methods[0]) == ["Metric.a"]
    assert named(*methods, own) == [own.function]


def test_every_cause_is_a_finding() -> None:
    """The buffer is found beside the flag; its share of the seconds is not invented."""
    flag, buffer = findings(recompile(1, FLAG, PE))
    assert (flag.rule, flag.cost_s) == ("CD101", 0.5)
    assert (buffer.rule, buffer.cost_s, buffer.variable) == ("CD103", None, "pos.pe")
    assert buffer.evidence["roles"] == ["also"]


def test_torch_lines_give_way_to_the_frame() -> None:
    """A guard of torch's own layer is blamed at the user's frame that compiled it."""
    inside = Location(
        "/opt/lib/python3.11/site-packages/torch/nn/modules/dropout.py", 73, "forward"
    )
    guard = FalseGuard("L['self'].p", "EQUALS_MATCH", "L['self'].p == 0.1", None, "0.2", inside)
    (finding,) = findings(recompile(1, guard))
    assert (finding.location, finding.ownership) == (make_place(FRAME), "user")


def test_ranks_share_a_finding() -> None:
    """The same cause in two processes is one thing to change."""
    (finding,) = findings(recompile(1, FLAG), recompile(1, FLAG, process=1))
    assert (finding.count, finding.evidence["processes"]) == (2, [0, 1])


def test_evidence_is_plain() -> None:
    """Changing values are listed once each, with what is left out of a long list."""
    guards = [
        FalseGuard("L['n']", "EQUALS_MATCH", f"L['n'] == {n}", None, str(n + 1)) for n in range(12)
    ]
    (finding,) = findings(*(recompile(n, guard) for n, guard in enumerate(guards)))
    values = finding.evidence["values"]
    assert isinstance(values, list)
    assert values[:2] == [["0", "1"], ["1", "2"]]
    assert len(values) == 8
    assert finding.count == 12


WORDS = [
    ("n == 2", "CD107", "the first value of `n`, then one in which it is a symbol"),
    ("n == True", "CD107", "each value"),
    ("i.item() == 0", "CD107", "the first value of"),
    ("len(l) == 1", "CD108", "type, length and set of keys"),
    ("self.k == 2", "CD104", "let a tensor hold it"),
    ("self.mode == 'a'", "CD104", "each value"),
    ("not hasattr(self, 'frac')", "CD104", "each value"),
    ("tensor 'x' size mismatch at index 1. expected 4, actual 5", "CD105", "mark it dynamic"),
    ("_dynamo_dynamic_indices not a subset: runtime {0}", "CD105", "alike at every call"),
    ("tensor 'x' dtype mismatch. expected Float, actual Double", "CD106", "one dtype"),
    ("tensor 'x' stride mismatch at index 0. expected 6, actual 1", "CD106", "one layout"),
    ("tensor 'x' requires_grad mismatch. expected requires_grad=0", "CD106", "requires_grad_()"),
    ("G['os'].environ._data[b'A'] == b'1'", "CD109", "each value"),
    ("Cache line invalidated because L['c'] got deallocated", "CD110", "make it once"),
    ("GLOBAL_STATE changed: grad_mode ", "CD111", "one graph for each mode"),
    ("GLOBAL_STATE changed: allow_tf32 ", "CD111", "once, before the first"),
    ("___check_torch_function_mode_stack()", "CD111", "before the first"),
    ("self.training == True", "CD111", "one graph for each mode"),
    ("", "CD112", "once"),
    ('Duplicate tensors found: ["x", "y"]', "CD113", "clone"),
    ("x is self.y", "CD113", "clone"),
    ("list(dict.keys(c))[0] is self._modules['key']", "CD190", "could not determine"),
    ("m is None", "CD114", "leave it where both are wanted"),
    ("len(fn._modules['0']._forward_hooks) != 1", "CD115", "before the first"),
    ("self.param_groups[0]['lr'] == 0.1", "CD116", "fill_"),
    ("self.param_groups[0]['step'] == 1", "CD116", "let a tensor hold it"),
    ("self.param_groups[0]['params'][1].grad is not None", "CD116", "set of gradients"),
    ("2 <= x.size()[0]", "CD118", "sizes 0 and 1"),
    ("2 <= x.size()[0] <= 9", "CD118", "each side"),
    ("quantum guard failed", "CD190", "could not determine"),
]


@pytest.mark.parametrize(("text", "code", "advice"), WORDS)
def test_words(text: str, code: str, advice: str) -> None:
    """Each kind of guard has its own advice, a page, and one short line as a title."""
    (finding,) = findings(printed(text))
    assert finding.rule == code
    assert finding.confidence == "text"
    assert advice in finding.fix.summary
    assert "\n" not in finding.title


OPTIMIZERS = [
    ("len(self.param_groups[0]) == 12", False),
    ("not ___dict_contains('step', opt.param_groups[0])", False),
    ("self.param_groups[0]['step'] == 1", False),
    ("len(self.state[list(dict.keys(self.state))[0]]) == 3", True),
    ("self.state[list(dict.keys(self.state))[0]]['step'] == 1", False),
    ("not ___dict_contains('m', self.state[list(dict.keys(self.state))[0]])", True),
]


@pytest.mark.parametrize(("text", "is_state"), OPTIMIZERS)
def test_what_of_an_optimizer_changed(text: str, is_state: bool) -> None:
    """State is what is in `state`; only for that a second compile is normal."""
    (finding,) = findings(printed(text))
    assert ("two compiles are normal" in finding.fix.summary) == is_state


def test_unguarded_change() -> None:
    """CD119 names what became stale and where it was registered; several checks are one finding."""
    where = Location("/home/u/train.py", 40, "main")
    change = UnguardedChanged(1.0, 4, FRAME, "forward_hook", "encoder.0", where)
    again = UnguardedChanged(2.0, 5, FRAME, "forward_hook", "encoder.0", where)
    (finding,) = find_unguarded_changes(Timeline(unguarded=(change, again)))
    assert (finding.rule, finding.severity, finding.variable) == ("CD119", "error", "encoder.0")
    assert (finding.location, finding.count, finding.steps) == (make_place(where), 2, (4, 5))
    assert finding.title == "forward hook changed after compile and is ignored"
    assert "register it before" in finding.fix.summary


def test_lost_effects() -> None:
    """CD652 names the tensor or generator once, whatever the places; items of an optimizer's state
    are all the state."""
    where = Location("/home/u/train.py", 40, "forward")
    state = "L['self'].state[list(dict.keys(L['self'].state))[0]]['step']"
    written = EffectLost(1.0, 2, "0/0", 0, "L['self']._buffers['low']", "copy_", "left out", where)
    effects = (
        written,
        replace(written, compile_id="0/1", operation="add_", step=4),
        replace(written, source=state, operation="iadd"),
        replace(written, source="G['rng']", operation="randint", kind="repeated"),
    )
    low, held, rng = find_lost_effects(Timeline(lost_effects=effects))
    assert {finding.rule for finding in (low, held, rng)} == {"CD652"}
    assert [finding.variable for finding in (low, held, rng)] == ["low", "self.state", "rng"]
    assert (low.location, low.count, low.steps) == (make_place(where), 2, (2, 4))
    assert low.title == "in-place `copy_` left out of the graph"
    assert rng.title == "`randint` of a random.Random draws once for all calls"
    assert low.fix.recipe is rng.fix.recipe is None


def test_register() -> None:
    """Codes are well formed, in order, with unique slugs; families are slugs with underscores."""
    assert list(REGISTER) == sorted(REGISTER)
    assert all(re.fullmatch(r"CD\d{3}", code) for code in REGISTER)
    slugs = [entry.slug for entry in REGISTER.values()]
    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", slug) for slug in slugs)
    assert (REGISTER["CD103"].slug, REGISTER["CD103"].family) == ("lazy-buffer", "lazy_buffer")
    assert "CD999" not in REGISTER


@pytest.mark.parametrize("code", RECOMPILE_CODES)
def test_every_code_has_a_page(code: str) -> None:
    """Each recompile code has a page that names it and shows bad and good code and the fixes."""
    text = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {code} {REGISTER[code].slug}")
    assert "## Fix" in text
    if code != "CD190":
        assert "## Bad" in text
        assert "## Good" in text
        assert text.count("```python") >= 2
    for named in re.findall(r"CD\d{3}", text):
        assert named in REGISTER


def size(old: int = 8, new: int = 5) -> FalseGuard:
    text = f"tensor 'x' size mismatch at index 0. expected {old}, actual {new}"
    return FalseGuard("L['x']", "TENSOR_MATCH", text, f"[{old}, 4]", f"[{new}, 4]", FRAME)


def test_ranks_do_not_make_a_size_constant() -> None:
    """Each rank compiles its second size once and is dynamic then: a mark helps. One frame that
    compiles a third constant size is not dynamic."""
    first, second = recompile(1, size()), recompile(2, size(5, 6))
    (ranks,) = findings(first, replace(first, process=1))
    assert "mark it dynamic" in ranks.fix.summary
    (constant,) = findings(first, second)
    assert "mark" not in constant.fix.summary
