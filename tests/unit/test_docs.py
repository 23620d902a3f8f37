"""The documentation is complete and fresh: commands, rules, errors, links."""

import ast
import functools
import inspect
import re
import shlex
import textwrap
from importlib import import_module
from pathlib import Path

import click
import pytest

from compilediag import errors
from compilediag.cli import COMMANDS, GROUPS, HIDDEN, load_command
from compilediag.commands import explain
from compilediag.diagnosis.codes import REGISTER

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
CODE = re.compile(r"CD\d{3}\Z")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead nowhere: to no file, or to no heading of it."""
    return [
        f"{target}#{anchor}" if anchor else target
        for target, anchor in LINK.findall(FENCE.sub("", text))
        if not _leads_somewhere(page, text, target, anchor)
    ]


def _leads_somewhere(page: Path, text: str, target: str, anchor: str) -> bool:
    place = page.parent / target
    if target and not place.exists():
        return False
    return not anchor or anchor in anchors(place.read_text(encoding="utf-8") if target else text)


def anchors(text: str) -> set[str]:
    """Anchors of the headings, as forges and the site name them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        plain = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        same = sum(
            re.fullmatch(rf"{re.escape(plain)}(-\d+)?", known) is not None for known in found
        )
        found.add(f"{plain}-{same}" if same else plain)
    return found


COMMAND = re.compile(
    r"^(?: {4,})?(?:\$ )?(?:\w+=\S+ )*compilediag ([a-z]+)(?= |$)(.*)$", re.MULTILINE
)
CODE_BLOCK = re.compile(r"^```\w*[^\n]*\n(.*?)^```|((?:^ {4}.*\n)+)", re.MULTILINE | re.DOTALL)


def shown_commands(text: str) -> list[tuple[str, list[str]]]:
    """Name and words of each command of compilediag in the code blocks of a page."""
    code = "\n".join(fenced or indented for fenced, indented in CODE_BLOCK.findall(text))
    return [
        (name, shlex.split(words, comments=True))
        for first, following in COMMAND.findall(code)
        for name, words in [_split_name(first, _alone(following))]
        if name in COMMANDS
    ]


def _split_name(first: str, words: str) -> tuple[str, str]:
    """The name of a command, of one word or of two, and the words that follow it."""
    if first in GROUPS:
        second, _, words = words.strip().partition(" ")
        first = f"{first} {second}"
    return first, words


def _alone(words: str) -> str:
    """The words of one command: without a comment in a second column, without what follows it."""
    return re.split(r" {2,}|;| 2?>>? | \| | && | \\$", words)[0]


def refused(name: str, words: list[str]) -> str:
    """Why the command line would refuse these words; empty where it takes them."""
    command = load_command(name)
    try:
        command.make_context(name, list(words))
    except click.UsageError as error:
        return error.format_message()
    except click.exceptions.Exit:
        pass
    return ""


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {*HIDDEN}))
def test_every_command_is_documented(name: str) -> None:
    """A page tells of it besides the list of all options, and its help shows an example."""
    listed = text_of("docs", "reference", "commands.md")
    section = listed.partition(f"## [{name}](")[2]
    page, section = section.partition(")")[0], section.partition("\n## ")[0]
    assert f"compilediag {name}" in text_of("docs", "reference", *page.partition("#")[0].split("/"))
    assert f"compilediag {name}" in section.partition("Example")[2]


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {*HIDDEN}))
def test_every_option_is_documented(name: str) -> None:
    """The page of a command names each of its options in full; `measure` has most from run."""
    listed = text_of("docs", "reference", "commands.md")
    page = listed.partition(f"## [{name}](")[2].partition(")")[0].partition("#")[0]
    pages = [page, "run.md"] if name.startswith("measure") else [page]
    text = "".join(text_of("docs", "reference", *page.split("/")) for page in pages)
    options = [option for option in load_command(name).params if isinstance(option, click.Option)]
    names = [max(option.opts, key=len) for option in options if not option.hidden]
    assert [name for name in names if not re.search(rf"{name}(?![\w-])", text)] == []


def codes_in(text: str) -> set[str]:
    """Every rule code that stands as a string of its own in a module."""
    strings = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return {item for item in strings if isinstance(item, str) and CODE.match(item)}


@functools.cache
def emitted() -> dict[str, set[str]]:
    """Module of the outside to the codes it names; the register itself is left out."""
    register = ROOT / "compilediag" / "diagnosis" / "codes.py"
    modules = {*(ROOT / "compilediag").rglob("*.py")} - {register}
    texts = {str(path): path.read_text(encoding="utf-8") for path in modules}
    return {path: codes_in(text) for path, text in texts.items() if "CD" in text}


def test_codes_are_found_in_modules() -> None:
    """The search can find a code, and takes no part of a text for one."""
    assert codes_in("def f():\n    yield finding('CD103', 'CD104 and more', 'CD1')") == {"CD103"}
    assert len(set().union(*emitted().values())) > 30


def test_every_code_of_a_rule_is_registered_and_has_a_page() -> None:
    """What a rule can say can be looked up."""
    named = set().union(*emitted().values())
    assert named - set(REGISTER) == set()
    assert named - set(explain.list_codes_with_page()) == set()
    assert set(explain.list_codes_with_page()) - set(REGISTER) == set(), "a page of no code"


def test_every_code_named_in_the_docs_is_registered_and_has_a_page() -> None:
    """No page shows a code that no rule reports; the register holds planned codes too."""
    named = {
        (code, page.name)
        for page in PAGES
        for code in re.findall(r"\bCD\d{3}\b", page.read_text(encoding="utf-8"))
    }
    explained = set(explain.list_codes_with_page()) & set(REGISTER)
    assert len(named) > 100
    assert sorted(item for item in named if item[0] not in explained) == []


@pytest.mark.parametrize("code", explain.list_codes_with_page())
def test_rule_pages_have_one_shape(code: str) -> None:
    text = explain.read_page(code) or ""
    assert text.startswith(f"# {code}")
    assert len(text.splitlines()) > 8


def test_every_error_is_explained() -> None:
    """Each error raised on purpose has its heading in the troubleshooting page."""
    text = text_of("docs", "howto", "troubleshooting.md")
    names = [
        name
        for name, item in inspect.getmembers(errors, inspect.isclass)
        if issubclass(item, errors.CompilediagError) and item is not errors.CompilediagError
    ]
    assert len(names) >= 7
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """No relative link of a page is dead."""
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


def test_dead_links_are_found() -> None:
    """The check can fail, and does not read code."""
    text = "[a](no/such.md#x) [b](https://x.invalid) [c](#here)\n```\n[d](nor/this)\n```\n"
    assert broken_links(ROOT / "README.md", text) == ["no/such.md#x", "#here"]
    text = "## Its `name`, and [more](docs/fix.md)!\n[a](#its-name-and-more) [b](README.md#no)\n"
    assert broken_links(ROOT / "README.md", text) == ["docs/fix.md", "README.md#no"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_shown_commands_can_be_typed(page: Path) -> None:
    """Every option and argument that a page shows is one that the command takes."""
    text = page.read_text(encoding="utf-8")
    wrong = [
        (name, words, why) for name, words in shown_commands(text) if (why := refused(name, words))
    ]
    assert wrong == []


PYTHON_BLOCK = re.compile(r"^```(?:python|py)\b[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def missing_names(text: str) -> list[str]:
    """What Python blocks of a page import from compilediag, or use of it, that does not exist."""
    found: list[str] = []
    for block in PYTHON_BLOCK.findall(text):
        plain = re.sub(r"^%.*$", "", block, flags=re.MULTILINE)  # of a notebook
        tree = ast.parse(textwrap.dedent(plain))
        ours = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "compilediag"
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("compilediag"):
                module = import_module(node.module or "")
                found += [
                    f"{node.module}.{alias.name}"
                    for alias in node.names
                    if not hasattr(module, alias.name)
                ]
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in ours
                and not hasattr(import_module("compilediag"), node.attr)
            ):
                found.append(f"compilediag.{node.attr}")
    return found


@pytest.mark.parametrize(
    "page", [page for page in PAGES if PYTHON_BLOCK.search(text_of(str(page)))], ids=name_of
)
def test_what_python_blocks_use_of_compilediag_exists(page: Path) -> None:
    assert missing_names(page.read_text(encoding="utf-8")) == []


def test_names_that_do_not_exist_are_found() -> None:
    text = (
        "```python\nimport compilediag as cd\nfrom compilediag.readers.lines import each\n"
        "cd.step()\ncd.nothing()\n```\n"
    )
    assert missing_names(text) == ["compilediag.readers.lines.each", "compilediag.nothing"]


def test_shown_commands_are_found_and_refused() -> None:
    """In both kinds of blocks; the search and the refusal can fail."""
    text = (
        "```console\n$ compilediag gate --no-such\ncompilediag: x\n```\n\n"
        "    compilediag show --all   # why\n"
    )
    assert shown_commands(text) == [("gate", ["--no-such"]), ("show", ["--all"])]
    assert "no-such" in refused("gate", ["--no-such"])
    assert refused("show", ["--all"]) == ""


def test_the_map_names_every_room() -> None:
    """docs/architecture.md names every folder and top module of both halves."""
    text = text_of("docs", "architecture.md")
    halves = ROOT / "harness" / "compilediag_harness", ROOT / "compilediag"
    wanted = [path.name for half in halves for path in half.glob("[a-z]*.py")]
    wanted += [f"{path.parent.name}/" for half in halves for path in half.glob("*/__init__.py")]
    assert [name for name in wanted if f"`{name}`" not in text] == []
