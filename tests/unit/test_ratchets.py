"""The ratchets: no number is above the stored one, and each count finds what it is about."""

import click
import pytest
import ratchets
from ratchets import RATCHETS, Ratchet
from sources import Source

FIELDS = "{0}: int\n    {1}: int\n    {2}: int\n    {3}: int\n"
RECORD = f"@dataclass\nclass {{}}:\n    {FIELDS.format(*'abcd')}    e: int\n    f: int"
CODES = "from compilediag.codes import FLAG\n"


@pytest.mark.parametrize("name", RATCHETS)
def test_no_number_rises(name: str) -> None:
    """What is counted now is at most what is stored; `make ratchets` lowers that."""
    ratchet = RATCHETS[name]
    if problem := ratchets.compare(ratchet, ratchet.count(), ratchets.read()[name]):
        pytest.fail(problem, pytrace=False)


@pytest.mark.parametrize(
    ("count", "texts", "expected"),
    [
        (
            ratchets.similar_records,
            (
                RECORD.format("One"),
                f"class Other(NamedTuple):\n    {FIELDS.format(*'abcd')}",
                f"@event()\nclass Less:\n    {FIELDS.format(*'cdef')}    x: int\n    y: int",
            ),
            {"m0.One ~ m1.Other": 1},
        ),
        (
            ratchets.similar_records,
            (
                RECORD.format("One"),
                RECORD.format("Base").replace("@dataclass\nclass Base", "class Base(Document)"),
                "class Document(msgspec.Struct, frozen=True): ...",
            ),
            {"m0.One ~ m1.Base": 1},
        ),
        (
            ratchets.single_importers,
            ("import m1, m2", "def f():\n    from m2 import name", "P = {'name': 'm0:name'}"),
            {"m1": 1},
        ),
        (
            ratchets.single_importers,
            ("from m1 import name", "import m0", "P = {'name': 'm1:name'}"),
            {"m0": 1},
        ),
        (
            ratchets.circles,
            ("import m1", "def f():\n    from m2 import name", "if TYPE_CHECKING:\n    import m0"),
            {"m0 <> m1 <> m2": 1},
        ),
        (ratchets.circles, ("import m1, m2", "import m2", ""), {}),
        (
            ratchets.ambiguous_names,
            ("class Change: ...\nclass _Own: ...", "class Change: ...", "class _Own: ..."),
            {"Change": 1},
        ),
        (
            ratchets.modules_of_a_code,
            ("FLAG = 'CD101'", f"{CODES}x = FLAG", '"""CD101 in words."""\nx = "CD102"'),
            {"CD101": 2, "CD102": 1},
        ),
        (
            ratchets.modules_of_a_code,
            (
                "SET: Final = frozenset(('CD101',))",
                "x in codes.SET",
                "x = f'{y} CD101', Code.CD102",
            ),
            {"CD101": 3, "CD102": 1},
        ),
        (
            ratchets.evidence_reads,
            (
                "x = evidence['a']",
                "x = finding.evidence.get('a'), evidence.get('b')",
                "x = proof['a']",
            ),
            {"m0": 1, "m1": 2},
        ),
        (
            ratchets.nameless_lines,
            (
                '"""What it does."""',
                'def f():\n    """Whatever it does."""',
                "class A:\n    'Of it.'",
            ),
            {"m0": 1, "m2": 1},
        ),
        (
            ratchets.names_without_a_verb,
            (
                "def found(): ...\nclass A:\n    def _line_of(self): ...",
                "def find_line(): ...\ndef is_line(): ...\ndef __len__(): ...",
                "class A:\n    @property\n    def line(self): ...",
            ),
            {"m0.found": 1, "m0._line_of": 1},
        ),
    ],
)
def test_a_count_finds_what_it_is_about(count, texts, expected) -> None:
    """And nothing else of three small modules."""
    sources = [Source(f"m{number}", text) for number, text in enumerate(texts)]
    assert count(sources) == expected


def test_options_words_lines_and_files_are_counted() -> None:
    """Hidden options are not; lines of any suffix are; each belongs to a room."""
    options = [click.Option(["-a", "--all"]), click.Option(["--old"], hidden=True)]
    command = click.Command("run", params=[click.Argument(["target"]), *options])
    assert ratchets.shown_options(command) == {"--all": 1}
    assert ratchets.words({"docs/a.md": "two  words\n", "docs/b.md": "one"}) == {
        "docs/a.md": 2,
        "docs/b.md": 1,
    }
    texts = {
        "compilediag/cli.py": "a\nb\n",
        "compilediag/views/html/page.css": "a\n",
        "compilediag/extensions/fleet/stats_view.py": "a\n",
        "harness/compilediag_harness/wire/event.py": "a\nb\nc\n",
    }
    assert ratchets.lines(texts) == {
        "compilediag": 2,
        "compilediag/views": 1,
        "compilediag/extensions/fleet": 1,
        "harness/compilediag_harness/wire": 3,
    }
    assert ratchets.files(texts) == {
        "compilediag": 1,
        "compilediag/extensions/fleet": 1,
        "harness/compilediag_harness/wire": 1,
    }


def test_every_count_reads_the_repository() -> None:
    """What is stored of it is not empty, unless the goal was reached."""
    stored = ratchets.read()
    assert set(stored) == set(RATCHETS)
    for name, ratchet in RATCHETS.items():
        assert stored[name] or ratchet.goal == 0


@pytest.mark.parametrize(
    ("total", "found", "stored", "sentence"),
    [
        (sum, {"a": 1, "b": 1}, {"a": 1}, "things: 2, at most 1 are allowed; new: b"),
        (sum, {"a": 1, "c": 1}, {"a": 1, "b": 1}, None),
        (sum, {"a": 7, "b": 2}, {"a": 3, "b": 2}, "things: 9, at most 5 are allowed; new: a (+4)"),
        (max, {"a": 3, "b": 3}, {"a": 3}, None),
        (max, {"a": 4, "b": 3}, {"a": 3}, "things: 4, at most 3 are allowed; new: a (+1); b (+3)"),
        (sum, {}, {"a": 1}, None),
    ],
)
def test_a_number_that_rose_is_one_sentence(total, found, stored, sentence) -> None:
    """It names what is new; what fell, or only changed its name, passes."""
    ratchet = Ratchet("things", 0, lambda: found, total)
    assert ratchets.compare(ratchet, found, stored) == sentence
