"""Causes of a recompile from facts of the process: families, consequences, the nearest entry."""

from dataclasses import replace

import pytest
import timelines

from compilediag.diagnosis.causes.run_causes import explain_recompile, find_run_causes, list_causes
from compilediag.diagnosis.findings import Cause, select_writers
from compilediag.timeline.timeline import Recompile
from compilediag_harness.wire import EntryDiff, FalseGuard, GuardFacts, Location

FRAME = Location("/home/u/model.py", 10, "forward")
HOOK_LINE = Location("/home/u/hooks.py", 21, "record")
CELL = "L['self']._modules['0']._forward_hooks[list(dict.keys(L['self']._modules['0']._forward_hooks))[0]].__closure__[0].cell_contents"  # noqa: E501 as torch prints it
MODULE = GuardFacts(root="argument", holder_kind="module", instance_changed=False)
KEYS = "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU)"
AUTOCAST_KEYS = "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU, AutocastCPU)"


def recompile(
    *entries: EntryDiff, reasons: tuple[str, ...] = (), problem: str | None = None
) -> Recompile:
    again = timelines.recompile(step=3, where=FRAME, problem=problem)
    return replace(again, reasons=reasons, entries=entries)


def entry(*guards: FalseGuard, compile_id: str = "0/0") -> EntryDiff:
    return EntryDiff(compile_id, guards, checked=100)


def value(source: str, expected: str, actual: str, facts: GuardFacts = MODULE) -> FalseGuard:
    leaf = {"True": "TRUE_MATCH", "False": "FALSE_MATCH"}.get(expected, "EQUALS_MATCH")
    return FalseGuard(source, leaf, f"{source} == {expected}", None, actual, FRAME, facts=facts)


def sized(source: str, expected: str, actual: str, facts: GuardFacts = MODULE) -> FalseGuard:
    text = f"tensor '{source}' size mismatch at index 0. expected 1, actual 8"
    return FalseGuard(source, "TENSOR_MATCH", text, expected, actual, FRAME, facts=facts)


def keys_differ(source: str, actual: str = AUTOCAST_KEYS) -> FalseGuard:
    text = f"tensor '{source}' dispatch key set mismatch. expected {KEYS}, actual {actual}"
    return FalseGuard(source, "TENSOR_MATCH", text, KEYS, actual, FRAME)


def only(guard: FalseGuard, *reasons: str) -> Cause:
    """The single cause of a recompile with one false guard."""
    (cause,) = list_causes(recompile(entry(guard), reasons=reasons))
    return cause


def codes(*guards: FalseGuard) -> list[str]:
    return [cause.rule for cause in list_causes(recompile(entry(*guards)))]


AUTOCAST = FalseGuard("L", "GLOBAL_STATE", "GLOBAL_STATE changed: autocast(cpu)_enabled ")
PE = sized("L['self']._modules['pos']._buffers['pe']", "[1, 16]", "[8, 16]")
X = sized("L['x']", "[4, 3]", "[5, 3]", GuardFacts(root="argument", holder_kind="dict"))
FLAG = FalseGuard(
    CELL,
    "FALSE_MATCH",
    f"{CELL} == False",
    None,
    "True",
    HOOK_LINE,
    "capture",
    GuardFacts(root="argument", free_variable="capture", value_type="bool"),
    writers=(Location("/home/u/hooks.py", 30, "watch.<locals>.set_capture"),),
)
STASH = FalseGuard(
    CELL.replace("'0'", "'1'"),
    "DICT_LENGTH",
    f"not {CELL}",
    "0 keys",
    "1 key",
    HOOK_LINE,
    "stash",
    GuardFacts(root="argument", free_variable="stash", value_type="dict"),
)


FREE = GuardFacts(root="free_variable")
ENUM = GuardFacts(root="argument", value_type="app.Mode", is_enum=True)
FIELD = GuardFacts(root="argument", holder_kind="namedtuple", holder_type="Batch")
SLICE = GuardFacts(root="argument", holder_kind="object", holder_type="slice")
NONE = GuardFacts(root="argument", value_type="NoneType")
OTHER = replace(MODULE, instance_changed=True)
NEW = GuardFacts(root="argument", instance_changed=True, holder_kind="object")
NO_TENSOR = "expected type of 'L['m']' to be <class 'torch.Tensor'>, but found <class 'NoneType'>"
BY_FACTS = [
    (FalseGuard("L['mode']", "ID_MATCH", "___check_obj_id(L['mode'], 7)", facts=ENUM), "CD107"),
    # A free variable of the compiled function itself is captured, although printed as passed.
    (value("L['n']", "2", "3", FREE), "CD101"),
    (FalseGuard("L['seen']", "LENGTH_CHECK", "len(L['seen']) == 1", facts=FREE), "CD102"),
    # A field of a named tuple, and of a slice, is part of an argument.
    (sized("L['n'].a", "[2]", "[3]", FIELD), "CD105"),
    (value("L['s'].step", "1", "2", SLICE), "CD107"),
    (value("L['s'].step", "1", "2", replace(SLICE, holder_type="TrainState")), "CD104"),
    # None where a tensor was, and a tensor where None was.
    (FalseGuard("L['m']", "TENSOR_MATCH", NO_TENSOR, facts=NONE), "CD114"),
    (FalseGuard("L['m']", "NONE_MATCH", "L['m'] is None", facts=NONE), "CD114"),
    # Another instance of the same code: whatever the leaf, nothing was mutated.
    (value("L['self'].layer_idx", "0", "1", OTHER), "CD117"),
    (sized("L['self']._parameters['w']", "[4]", "[6]", OTHER), "CD117"),
    # A new function or dataclass at every call is no instance of the compiled code.
    (
        FalseGuard("L['g'].__code__", "ID_MATCH", "___check_obj_id(L['g'].__code__, 7)", facts=NEW),
        "CD110",
    ),
    (value("L['o'].k", "2.5", "3.5", NEW), "CD107"),
]


class TestFamilies:
    """Every decision the facts of the process make possible."""

    def test_a_mode_that_is_on_or_off_has_both_values(self) -> None:
        """Beside others that changed with it, of which only the name is known."""
        guard = FalseGuard(
            "L", "GLOBAL_STATE", "GLOBAL_STATE changed: grad_mode ", actual="grad_mode=off"
        )
        several = replace(guard, text="GLOBAL_STATE changed: grad_mode num_threads ")
        cause = only(guard)
        assert (cause.expected, cause.actual) == ("on", "off")
        first, second = list_causes(recompile(entry(several)))
        assert (first.expected, first.actual, second.actual) == ("on", "off", None)

    def test_closure_flag(self) -> None:
        """A closure cell is named by its free variable and blamed at the hook's line."""
        cause = only(FLAG)
        assert (cause.rule, cause.variable, cause.location) == ("CD101", "capture", HOOK_LINE)
        assert (cause.expected, cause.actual, cause.confidence) == ("False", "True", "exact")
        assert cause.writers == FLAG.writers
        assert cause.primary

    def test_closure_container(self) -> None:
        """A dict in a cell that fills is a closure container."""
        cause = only(STASH)
        assert (cause.rule, cause.variable) == ("CD102", "stash")
        assert (cause.expected, cause.actual) == ("0 keys", "1 key")

    def test_flag_of_torch_2_7(self) -> None:
        """2.7 guards a flag by the id of False: the process shows which value that is."""
        guard = replace(FLAG, leaf="ID_MATCH", text=f"___check_obj_id({CELL}, 9)", expected="False")
        cause = only(guard)
        assert (cause.rule, cause.kind, cause.expected) == ("CD101", "value", "False")

    @pytest.mark.parametrize(
        ("expected", "value_type", "code"),
        [("None", "torch.Tensor", "CD114"), ("True", "bool", "CD107"), (None, "function", "CD110")],
    )
    def test_ids_of_torch_2_7(self, expected: str | None, value_type: str, code: str) -> None:
        """An id check of an argument is a None, a bool or an object, by the facts."""
        facts = GuardFacts(root="argument", holder_kind="dict", value_type=value_type)
        guard = FalseGuard(
            "L['m']", "ID_MATCH", "___check_obj_id(L['m'], 7)", expected, "now", facts=facts
        )
        assert only(guard).rule == code

    @pytest.mark.parametrize(("guard", "code"), BY_FACTS)
    def test_facts_decide(self, guard: FalseGuard, code: str) -> None:
        """What the text of a guard does not tell."""
        assert only(guard).rule == code

    def test_buffer_of_a_captured_module(self) -> None:
        """A module reached through a free variable or a global is a module all the same."""
        facts = GuardFacts(root="free_variable", holder_kind="module")
        guard = sized("L['model']._modules['pos']._buffers['pe']", "[1]", "[8]", facts)
        assert (only(guard).rule, only(guard).variable) == ("CD103", "model.pos.pe")
        held = GuardFacts(root="global", holder_kind="module")
        assert only(sized("G['model']._buffers['pe']", "[1]", "[8]", held)).rule == "CD103"

    def test_fields_of_argument_objects(self) -> None:
        """Whoever makes an object for one call decides on its fields; one that lives on and whose
        fields the caller fills is no cache; one that fills itself is."""
        fresh = GuardFacts(
            root="argument", instance_changed=True, holder_kind="object", holder_type="Request"
        )
        assert only(sized("L['request'].a", "[4, 24]", "[4, 36]", fresh)).rule == "CD105"
        now = replace(fresh, value_type="torch.Tensor")
        absent = FalseGuard("L['r'].b", "NONE_MATCH", "L['r'].b is None", "None", "T", facts=now)
        assert only(absent).rule == "CD114"
        kept = replace(fresh, instance_changed=False)
        filled = sized("L['request'].a", "[4, 24]", "[4, 36]", kept)
        by_caller = replace(filled, writers=(Location("app.py", 3, "main"),))
        by_itself = replace(filled, writers=(Location("cache.py", 9, "Request.update"),))
        assert only(by_caller).rule == "CD105"
        assert only(by_itself).rule == "CD103"

    def test_attribute_that_became_a_tensor(self) -> None:
        """An attribute that was absent and now holds a tensor is a lazily created one."""
        facts = replace(MODULE, member_type="torch.Tensor")
        guard = FalseGuard(
            "L['self']", "NO_HASATTR", "not hasattr(L['self'], 'pe')", user=FRAME, facts=facts
        )
        cause = only(guard)
        assert (cause.rule, cause.kind, cause.variable) == ("CD103", "created", "self.pe")
        assert only(replace(guard, facts=MODULE)).rule == "CD104"

    def test_duck_sizing(self) -> None:
        """The explanation torch prints behind an equality separates accident from need."""
        guard = FalseGuard("", "SHAPE", "L['y'].size()[0] == L['x'].size()[0]")
        printed = (
            "0/0: y.size()[0] == x.size()[0]  # duck sizing added this equality because these "
            "variables had the same size 4"
        )
        assert only(guard, printed).kind == "duck_equal"
        assert only(guard).kind == "equal"
        assert only(guard).variable == "y"

    def test_aliasing(self) -> None:
        """Relational guards cannot be called: the printed reason stands in."""
        cause = only(FalseGuard("", "PRINTED", 'Duplicate tensors found: ["x", "y"]'))
        assert (cause.rule, cause.variable, cause.confidence) == ("CD113", "x and y", "text")

    def test_alias_path_is_not_blamed(self) -> None:
        """The path names the module that reached a shared object first; the user's line counts."""
        shared = replace(FLAG, user=Location("/home/u/second.py", 5, "other_hook"))
        assert only(shared).location == Location("/home/u/second.py", 5, "other_hook")

    def test_global_state_of_torch_2_7(self) -> None:
        """The leaf's text has no component there; torch's printed reason for the entry has it."""
        guard = FalseGuard("L", "GLOBAL_STATE", "___check_global_state()")
        assert only(guard, "0/0: GLOBAL_STATE changed: grad_mode ").kind == "grad_mode"

    def test_optimizer_frame(self) -> None:
        """What a frame of torch.optim guards is the optimizer's."""
        facts = GuardFacts(root="argument", holder_kind="dict")
        guard = value("L['self'].param_groups[0]['lr']", "0.1", "0.05", facts)
        assert (only(guard).rule, only(guard).kind) == ("CD116", "lr")

    def test_number_taken_for_a_constant_again(self) -> None:
        """A condition on one Python number is that number's, at the user's line and not torch's."""
        place = "(fx/passes/_tensorify_python_scalars.py:429 in _tensorify_impl)"
        guard = FalseGuard("", "SHAPE", "(1.0 + L['a']) == 1.9", None, "0.3", hint=place)
        cause = only(guard, f"0/0: (1.0 + a) == 1.9  # {place}")
        assert (cause.rule, cause.kind, cause.variable) == ("CD107", "number", "a")
        assert (cause.expected, cause.actual) == ("(1.0 + a) == 1.9", "0.3")
        assert cause.location is None or not cause.location.file.startswith("(")

    def test_inference_mode_is_one_cause(self) -> None:
        """All tensors lack the same dispatch keys, and the mode that records gradients is off too:
        one thing was done. A single inference tensor, outside the mode, is that tensor's."""
        keys = "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView)"
        text = (
            f"dispatch key set mismatch. expected {keys}, actual DispatchKeySet(CPU, BackendSelect)"
        )
        sources = ("L['x']", "L['self']._parameters['weight']")
        guards = [
            FalseGuard(source, "TENSOR_MATCH", f"tensor '{source}' {text}", user=FRAME)
            for source in sources
        ]
        inside = GuardFacts(root="argument", inference_mode=True)
        mode = FalseGuard("", "GLOBAL_STATE", "GLOBAL_STATE changed: grad_mode ")
        (cause,) = list_causes(
            recompile(entry(mode, *(replace(guard, facts=inside) for guard in guards)))
        )
        assert (cause.rule, cause.variable) == ("CD111", "inference_mode")
        assert (cause.expected, cause.actual) == ("off", "on")
        outside = only(replace(guards[0], facts=GuardFacts(root="argument")))
        assert (outside.rule, outside.kind) == ("CD106", "inference")


class TestConsequences:
    """What follows from another false guard is no cause."""

    def test_autocast_makes_every_tensor_guard_false(self) -> None:
        """Only the mode is left of autocast, input, weight and bias."""
        tensors = [keys_differ(f"L['self']._parameters['{name}']") for name in ("weight", "bias")]
        (cause,) = list_causes(recompile(entry(AUTOCAST, keys_differ("L['x']"), *tensors)))
        assert (cause.rule, cause.kind) == ("CD111", "autocast.cpu.enabled")

    def test_a_real_mismatch_under_autocast_stays(self) -> None:
        """A size that differs as well is a cause of its own."""
        assert codes(AUTOCAST, X) == ["CD111", "CD105"]

    def test_attributes_below_another_type(self) -> None:
        """Below a swapped submodule nothing is as guarded; the swap is the cause."""
        path = "L['self']._modules['act']"
        text = f"___check_type_id({path}, 7), type=<class 'torch.nn.ReLU'>"
        swapped = FalseGuard(path, "TYPE_MATCH", text, facts=MODULE)
        assert codes(swapped, value(f"{path}.inplace", "False", "True")) == ["CD104"]

    def test_missing_key(self) -> None:
        """What lies below an absent key follows from its absence."""
        facts = GuardFacts(root="argument", holder_kind="dict")
        absent = FalseGuard("L['d']", "DICT_CONTAINS", "___dict_contains('k', L['d'])", facts=facts)
        assert codes(absent, value("L['d']['k']", "1", "2", facts)) == ["CD108"]

    def test_length_and_elements_count_once(self) -> None:
        """A list that grew has other elements at its positions; a dict's named value does not move
        when the dict grows: both must be mended."""
        facts = GuardFacts(root="argument", holder_kind="list")
        grown = FalseGuard("L['l']", "LENGTH_CHECK", "len(L['l']) == 1", facts=facts)
        assert codes(grown, value("L['l'][0]", "2", "3", facts)) == ["CD108"]
        facts = GuardFacts(root="argument", holder_kind="dict")
        grown = FalseGuard("L['d']", "DICT_LENGTH", "len(L['d']) == 1", facts=facts)
        assert codes(grown, value("L['d']['k']", "2", "3", facts)) == ["CD107", "CD108"]

    def test_the_key_that_came_before_the_count_of_keys(self) -> None:
        """Of one dict both are false: which key it is says more."""
        path = "L['self'].param_groups[0]"
        facts = GuardFacts(root="self", holder_kind="optimizer")
        counted = FalseGuard(
            path, "DICT_LENGTH", f"len({path}) == 12", "12 keys", "13 keys", facts=facts
        )
        text = f"not ___dict_contains('step', {path})"
        key = FalseGuard(
            path, "DICT_CONTAINS", text, "'step' absent", "'step' present", facts=facts
        )
        (cause,) = list_causes(recompile(entry(counted, key)))
        assert (cause.expected, cause.actual) == ("'step' absent", "'step' present")

    def test_printed_reason_beside_its_leaf(self) -> None:
        """A printed reason without a source adds nothing to its leaf."""
        text = "_has_dynamo_dim_marking is present on runtime tensor but was absent at compile time"
        leaf = FalseGuard(
            "L['x']", "DIMENSION_DYNAMIC_MARKING_GUARD", "hasattr(x, '_dynamo_dynamic_indices')"
        )
        (cause,) = list_causes(recompile(entry(FalseGuard("", "PRINTED", text), leaf)))
        assert (cause.rule, cause.kind, cause.variable) == ("CD105", "marking", "x")

    def test_model_cast_at_once_is_one_cause(self) -> None:
        """`model.half()` changes every parameter and is one act."""
        text = "tensor '{}' dtype mismatch. expected Float, actual Half"
        parameters = [
            FalseGuard(source, "TENSOR_MATCH", text.format(source), "Float", "Half", facts=MODULE)
            for source in ("L['m']._parameters['weight']", "L['m']._parameters['bias']")
        ]
        assert codes(*parameters) == ["CD106"]

    def test_train_and_eval_are_one_cause(self) -> None:
        """`model.eval()` turns the flag of every module."""
        flags = [value(f"L['self']._modules['{n}'].training", "True", "False") for n in range(3)]
        assert codes(*flags) == ["CD111"]


class TestCompanions:
    """Ints and flags beside a lazily grown buffer."""

    TABLE = sized("L['self']._buffers['table']", "[4, 16]", "[16, 16]")
    LENGTH = value("L['self'].seq_len", "4", "16")

    def test_int_and_buffer_are_one_cause(self) -> None:
        """The int became the buffer's new size: fix the buffer and both are mended."""
        (cause,) = list_causes(recompile(entry(self.LENGTH, self.TABLE)))
        assert (cause.rule, cause.variable, cause.kind) == ("CD103", "table", "shape")

    def test_unrelated_attribute_stays(self) -> None:
        """An int of the same module that is no size of the buffer is a cause of its own."""
        assert codes(value("L['self'].k", "2", "3"), self.TABLE) == ["CD103", "CD104"]

    def test_farther_entry_is_the_witness(self) -> None:
        """Once the size is dynamic the int fails alone; an older entry shows the grown buffer."""
        near = entry(self.LENGTH, compile_id="0/1")
        far = entry(self.LENGTH, self.TABLE, X)
        (cause,) = list_causes(recompile(near, far))
        assert (cause.rule, cause.kind, cause.variable) == ("CD103", "companion", "table")

    def test_flag_read_with_the_buffer(self) -> None:
        """A bool that turned, read in the function that reads the buffer, is its flag."""
        flag = value("L['self'].ready", "False", "True")
        assert codes(flag, self.TABLE) == ["CD103"]
        elsewhere = replace(flag, user=Location("/home/u/model.py", 90, "log"))
        assert codes(elsewhere, self.TABLE) == ["CD103", "CD104"]

    def test_size_condition_with_the_int(self) -> None:
        """2.7 makes the int a symbol: the condition names it and goes with the buffer."""
        condition = FalseGuard("", "SHAPE", "L['x'].size()[0] > L['self'].seq_len")
        assert codes(condition, self.TABLE) == ["CD103"]

    def test_preallocated_cache(self) -> None:
        """A cache that keeps its shape still shows by the int that counts its fill."""
        cause = only(value("L['self'].cached_freqs_seq_len", "0", "10"))
        assert (cause.rule, cause.kind) == ("CD103", "companion")


class TestNearest:
    """The recompile is measured against the entry with the fewest conditions."""

    def test_all_three_bugs_at_once(self) -> None:
        """Flag, dict and buffer fail together: three causes, the closure's first."""
        found = list_causes(recompile(entry(FLAG, STASH, PE)))
        assert [cause.rule for cause in found] == ["CD101", "CD102", "CD103"]
        assert [cause.primary for cause in found] == [True, False, False]

    def test_fewest_conditions_win(self) -> None:
        """A farther entry's conditions are no causes."""
        found = list_causes(recompile(entry(FLAG, PE), entry(X, compile_id="0/1")))
        assert [cause.rule for cause in found] == ["CD105"]

    def test_what_no_entry_accepts_is_the_cause(self) -> None:
        """Two entries are one guard away: the flag has a value that the other was compiled for, the
        dict one that none was. Beside one another the new one is first."""
        known, novel = replace(FLAG, novel=False), replace(STASH, novel=True)
        (cause,) = list_causes(recompile(entry(known), entry(novel, compile_id="0/1")))
        assert cause.rule == "CD102"
        both = list_causes(replace(recompile(entry(known, novel)), entries_left_out=1))
        assert [item.rule for item in both] == ["CD102", "CD101"]
        unknown = list_causes(recompile(entry(FLAG, STASH)))
        assert [item.rule for item in unknown] == ["CD101", "CD102"]

    def test_one_act_on_many_tensors_is_near(self) -> None:
        """A batch of other dtype and length has all its tensors changed alike: two acts. An entry
        with three false guards of three acts is farther, although it has fewer guards."""
        ids = [f"L['batch']['{name}']" for name in "abcd"]
        facts = GuardFacts(root="argument")
        whole = [
            FalseGuard(
                source,
                "TENSOR_MATCH",
                f"tensor '{source}' dtype mismatch. expected Long, actual Int",
                "torch.int64",
                "torch.int32",
                FRAME,
                facts=facts,
            )
            for source in ids
        ]
        other = [value(f"L['{name}']", "1", "2", facts) for name in ("k", "m", "n")]
        longer = sized("L['past']", "[4, 8]", "[6, 8]", facts)
        found = list_causes(recompile(entry(*other), entry(*whole, longer, compile_id="0/1")))
        assert {cause.rule for cause in found} == {"CD105", "CD106"}

    def test_ties_go_to_the_most_recently_used(self) -> None:
        """Of equals the first listed entry shows what changed since the previous call."""
        found = list_causes(recompile(entry(FLAG), entry(X, compile_id="0/1")))
        assert [cause.rule for cause in found] == ["CD101"]

    def test_consequences_do_not_make_an_entry_far(self) -> None:
        """Autocast fails four guards of its entry and is nearer than two real changes."""
        tensors = [keys_differ(f"L['{name}']") for name in "abc"]
        found = list_causes(recompile(entry(PE, X), entry(AUTOCAST, *tensors)))
        assert [cause.rule for cause in found] == ["CD111"]

    def test_other_instances_do_not_count(self) -> None:
        """With an entry of this instance the entries of others are no measure."""
        other = value("L['self'].i", "0", "1", replace(MODULE, instance_changed=True))
        found = list_causes(recompile(entry(other), entry(PE, X, compile_id="0/1")))
        assert [cause.rule for cause in found] == ["CD103", "CD105"]

    def test_leafless_entry_takes_the_printed_reason(self) -> None:
        """An entry whose leaves are all true has what torch printed: on 2.7 an empty reason."""
        (cause,) = list_causes(recompile(entry(), reasons=("0/0: ",)))
        assert (cause.rule, cause.confidence) == ("CD112", "text")


class TestText:
    """Without analysed entries torch's printed reasons are all there is."""

    REASONS = ("0/1: n == 2", "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5")

    def test_first_reason_is_primary(self) -> None:
        """Which entry is nearest is unknown: the most recently used one is taken."""
        (cause,) = list_causes(recompile(reasons=self.REASONS))
        assert (cause.rule, cause.primary, cause.confidence) == ("CD107", True, "text")

    def test_every_entry_that_is_named_is_kept(self) -> None:
        """Each with the one guard that torch prints; how many more were false is not known."""
        found = explain_recompile(recompile(reasons=self.REASONS)).entries
        assert [
            (item.compile_id, [guard.variable for guard in item.guards], item.left_out)
            for item in found
        ] == [("0/1", ["n"], None), ("0/0", ["x"], None)]

    def test_incomplete_analysis_is_not_trusted(self) -> None:
        """Half of the entries do not determine the nearest one."""
        (cause,) = list_causes(recompile(entry(FLAG), reasons=self.REASONS, problem="stopped"))
        assert (cause.rule, cause.confidence) == ("CD107", "text")

    def test_no_reason_at_all(self) -> None:
        """Nothing is known: the cause is unclassified, not guessed."""
        (cause,) = list_causes(recompile())
        assert (cause.rule, cause.kind) == ("CD190", "no_reason")

    def test_unknown_text_is_shown(self) -> None:
        """A text of a future torch is unclassified, and kept."""
        (cause,) = list_causes(recompile(reasons=("0/0: quantum guard failed",)))
        assert (cause.rule, cause.guard) == ("CD190", "quantum guard failed")


LOADED = value("L['self'].loaded", "False", "True")
WAY = value("L['self'].way", "'b'", "'a'")
SCALE = value("L['self'].scale", "7", "1")


@pytest.mark.parametrize(
    ("facts", "served", "expected"),
    [
        # It was compiled before anything was loaded, and nothing that it refuses has changed.
        (MODULE, (WAY, SCALE), ["self.scale", "self.way"]),
        # What it refuses has changed since the last call, too.
        (MODULE, (WAY, SCALE, LOADED), ["self.loaded"]),
        # The last call was that of another instance, which says nothing about this one.
        (replace(MODULE, instance_changed=True), (WAY, SCALE), ["self.loaded"]),
    ],
)
def test_the_entry_of_another_world(
    facts: GuardFacts, served: tuple[FalseGuard, ...], expected: list[str]
) -> None:
    """Of `0/0`, which has the fewest false guards, and `0/1`, which served the last call."""
    before = replace(timelines.recompile("0/1", step=1, where=FRAME), entries=(entry(LOADED, WAY),))
    last = tuple(replace(guard, facts=facts) for guard in served)
    entries = (entry(*last, compile_id="0/1"), entry(LOADED))
    now = replace(
        timelines.recompile("0/2", step=3, where=FRAME),
        entries=entries,
        reasons=("0/1: L['self'].way == 'b'", "0/0: L['self'].loaded == False"),
    )
    run = timelines.timeline(
        [
            timelines.attempt(where=FRAME),
            timelines.attempt("0/1", kind="recompile", step=1, where=FRAME, cause=before),
            timelines.attempt("0/2", kind="recompile", step=3, where=FRAME, cause=now),
        ]
    )
    assert sorted(cause.variable for cause in find_run_causes(run).get_causes(now)) == expected


def test_a_method_of_torch_is_named_only_where_it_was_seen() -> None:
    """Nobody called `load_state_dict`: the step itself put the state there."""
    loads = Location("/v/site-packages/torch/optim/optimizer.py", 1000, "Optimizer.load_state_dict")
    assert select_writers((loads,), traced=True) == (loads,)
    assert select_writers((loads,), traced=False) == ()
    assert select_writers((HOOK_LINE,), traced=False) == (HOOK_LINE,)
