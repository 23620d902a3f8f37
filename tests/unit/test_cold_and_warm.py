"""What a second start compiles again, and why; keys of two runs."""

from dataclasses import replace

from built_receipt import built, compiled, ended, started, torch_seen
from timelines import FILE, WHERE, attempt, timeline

from compilediag.compare.changed_data import find_changed_cache_keys
from compilediag.compare.cold_and_warm import ColdAndWarm, conclude, find_changing_keys
from compilediag.diagnosis.figures.key_difference import (
    KeyChange,
    describe_changes,
    describe_remedy,
    find_key_changes,
)
from compilediag.diagnosis.findings import make_place
from compilediag.receipt.schema.receipt import Receipt
from compilediag.timeline.compiles import ProcessCaches
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import CacheFolderRead, CacheLookedUp, CacheWritten, Location

FOLDER = "/caches/inductor"
GRAPH = {"gm": "aaaaaaaa mul(x, 0.25)", "torch_version": "vvvvvvvv 2.13"}
OTHER_GRAPH = {**GRAPH, "gm": "bbbbbbbb mul(x, 0.75)"}


def looked_up(
    outcome: str, key: str = "k1", compile_id: str = "0/0", **more: object
) -> CacheLookedUp:
    found = CacheLookedUp(1.0, 0, "fx_graph", outcome, compile_id, 0, key=key)
    return replace(found, **more)


def start(
    *lookups: CacheLookedUp,
    components: dict[str, str] = GRAPH,
    folder: str = FOLDER,
    problem: str = "",
    where: Location = WHERE,
) -> Timeline:
    """A start with one compile, whose lookups have the components."""
    held = tuple(components.items())
    caches = ProcessCaches(
        process=0,
        lookups=tuple(replace(each, components=held) for each in lookups),
        writes=(CacheWritten(1.0, 0, "fx_graph", "0/0", 0, problem),),
        folder=CacheFolderRead(0.0, folder, configured=True, temporary=True),
    )
    return replace(timeline([replace(attempt("0/0"), frame=where)]), caches=(caches,))


def concluded(warm: Timeline, cold: Timeline | None = None) -> ColdAndWarm:
    return conclude(cold or start(looked_up("miss")), warm, FOLDER)


def test_everything_from_the_cache() -> None:
    """A hit is no compile."""
    found = concluded(start(looked_up("hit")))
    assert (found.section.verdict, found.section.compiles, found.again) == ("from_caches", 1, ())


def test_a_key_that_changes() -> None:
    """The component is named with both values, and it is a finding at the function."""
    warm = start(looked_up("miss", "k2"), components=OTHER_GRAPH)
    found = concluded(warm)
    (again,) = found.again
    assert again.record.why == "key_changed"
    assert again.changes == (KeyChange("gm", "mul(x, 0.25)", "mul(x, 0.75)"),)
    (finding,) = find_changing_keys(warm, found)
    assert (finding.rule, finding.location) == ("CD612", make_place(WHERE))
    assert finding.evidence["compile_ids"] == ["0/0"]


def test_a_bypass_has_torchs_reason() -> None:
    """It comes before everything else, and is no changing key."""
    warm = start(looked_up("bypass", "", reason="Unsupported call"), components=OTHER_GRAPH)
    found = concluded(warm)
    assert found.again[0].record.why == "bypass"
    assert found.again[0].record.reason == "torch does not cache it: Unsupported call"
    assert not list(find_changing_keys(warm, found))


def test_the_same_key_without_its_entry() -> None:
    """The folder was deleted, or the entry could not be written: torch's reason is a note."""
    cold = start(looked_up("miss"), problem="PermissionError: no room")
    found = concluded(start(looked_up("miss")), cold)
    assert found.again[0].record.why == "entry_gone"
    assert found.section.notes == (
        "the first start could not write 1 entry of a cache: PermissionError: no room",
    )


def test_another_function_under_the_same_id() -> None:
    """Its key is not compared with that of another function."""
    other = start(looked_up("miss", "k0"), components=OTHER_GRAPH, where=Location(FILE, 99, "g"))
    found = concluded(start(looked_up("miss")), other)
    assert (found.again[0].record.why, found.again[0].changes) == ("not_compiled_before", ())


def test_other_counts_of_lookups_are_not_paired() -> None:
    """Forward and backward look up once each: with one more, nothing says which is which."""
    cold = start(looked_up("miss", "k0"), looked_up("miss", "k9"))
    found = concluded(start(looked_up("miss", "k2"), components=OTHER_GRAPH), cold)
    assert (found.again[0].record.why, found.again[0].changes) == ("key_changed", ())
    assert "torch does not record in what" in found.again[0].record.reason


def test_a_program_with_a_folder_of_its_own() -> None:
    """Its caches were not empty: nothing is concluded."""
    found = concluded(start(looked_up("hit"), folder="/home/user/cache"))
    assert found.section.verdict == "not_concluded"
    assert "/home/user/cache" in (found.section.problem or "")


def test_a_backend_without_a_cache() -> None:
    """No lookup is no hit."""
    found = conclude(timeline([attempt("0/0")]), timeline([attempt("0/0")]), FOLDER)
    assert found.section.verdict == "not_concluded"


def test_another_torch_is_one_component() -> None:
    """Hundreds of settings differ with it."""
    settings = {f"inductor_config[{n}]": f"{n:08} {n}" for n in range(100)}
    changes = find_key_changes(
        {**GRAPH, **settings}, {**OTHER_GRAPH, "torch_version": "wwwwwwww 2.15"}
    )
    assert describe_changes(changes) == "the version of torch"
    assert describe_remedy(changes) == "use one version of torch"


def test_components_in_words() -> None:
    """What torch names, as an engineer says it; what has no components differs in nothing."""
    before = {
        "fx_kwargs[boxed_forward_device_index]": "a 0",
        "inductor_config[max_autotune]": "f F",
    }
    after = {"fx_kwargs[boxed_forward_device_index]": "b 1", "inductor_config[max_autotune]": "t T"}
    assert describe_changes(find_key_changes(before, after)) == (
        "the index of the device and the setting torch._inductor.config.max_autotune"
    )
    assert find_key_changes({}, after) == ()


def test_diff_names_what_keys_differ_in() -> None:
    """Only of misses with another key."""

    def of(key: str, components: dict[str, str], outcome: str = "miss") -> Receipt:
        lookup = looked_up(outcome, key, components=tuple(components.items()))
        return built([started(), torch_seen(), lookup, compiled("0/0", 2.0, 0, 1.0), ended()])

    before = of("k1", GRAPH)
    (change,) = find_changed_cache_keys(before, of("k2", OTHER_GRAPH))
    assert [item.name for item in change.changes] == ["gm"]
    assert (change.functions, change.compile_ids) == (("forward",), ("0/0",))
    assert not find_changed_cache_keys(before, of("k1", GRAPH))
    assert not find_changed_cache_keys(before, of("k2", OTHER_GRAPH, "hit"))
