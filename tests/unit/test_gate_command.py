"""`compilediag gate` as a command: what it reads, what it writes, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import enter_plain_repository
from gate_receipts import again, branch, first, receipt

from compilediag.cli import main
from compilediag.compare.gate.baseline import LOCK_NAME
from compilediag.receipt.file import write_receipt
from compilediag.receipt.schema.receipt import Receipt

CLEAN = receipt()
CAUSE = receipt(first(), again("n"))


@pytest.fixture(autouse=True)
def plain_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    enter_plain_repository(monkeypatch, tmp_path)


def saved(made: Receipt, name: str = "r.json") -> str:
    write_receipt(made, Path(name))
    return name


def gate(*arguments: str) -> int:
    return main(["gate", *arguments])


def recorded(made: Receipt, *more: str) -> None:
    assert gate(saved(made, "base.json"), "--update", "--reason", "known", *more) == 0


def test_nothing_to_judge_by(capsys: Any) -> None:
    """A usage error that says what to type, both ways."""
    assert gate(saved(CLEAN)) == 2
    printed = capsys.readouterr().err
    assert "`compilediag gate --update`" in printed
    assert "`compilediag gate --fail-on 'recompiles>0'`" in printed


def test_the_baseline_of_this_folder(capsys: Any, monkeypatch: Any) -> None:
    """Recorded once, found from a folder below, and the new cause fails."""
    recorded(CAUSE)
    Path("pkg").mkdir()
    monkeypatch.chdir("pkg")
    assert gate(saved(CAUSE)) == 0
    assert gate(saved(receipt(first(), again("n"), again("m", 2, 2)))) == 3
    printed = capsys.readouterr().out
    assert "m (2 → 3) made torch compile forward again" in printed
    assert printed.rstrip().endswith("next: compilediag explain 2 r.json")


def test_improvements_pass_and_strict_ones_do_not(capsys: Any) -> None:
    """`--strict-improvement` fails until `--update`."""
    recorded(CAUSE)
    capsys.readouterr()
    assert gate(saved(CLEAN)) == 0
    assert capsys.readouterr().out.rstrip().endswith("next: compilediag gate --update r.json")
    assert gate("r.json", "--strict-improvement") == 3
    assert gate("r.json", "--update") == 0
    assert gate("r.json", "--strict-improvement") == 0


def test_an_update_needs_a_reason_for_what_it_newly_allows(capsys: Any) -> None:
    """Also in the first baseline; nothing is written without it."""
    assert gate(saved(CAUSE), "--update") == 2
    assert 'CD107 n; say why they are all right: --reason "TEXT"' in capsys.readouterr().err
    assert not Path(LOCK_NAME).exists()
    recorded(CAUSE)
    more = saved(receipt(first(), again("n"), again("m", 2, 2)))
    before = Path(LOCK_NAME).read_text()
    assert gate(more, "--update") == 2
    assert Path(LOCK_NAME).read_text() == before
    assert gate(more, "--update", "--reason", "second size") == 0


def test_an_update_says_what_it_wrote(capsys: Any) -> None:
    """The file, each lane with its counts and what is allowed now, and the next command."""
    recorded(receipt(first(), again("n"), breaks=[branch()]))
    assert capsys.readouterr().out.splitlines() == [
        f"Wrote {LOCK_NAME}",
        (
            "  configuration train: 1 frame, 2 compiles, 1 recompile, 2 graphs, 1 graph break; "
            "allowed: 1 cause, 1 graph break"
        ),
        "",
        f"  next: git add {LOCK_NAME}, and in CI: compilediag gate",
    ]


def test_an_update_leaves_other_lanes_alone() -> None:
    """Only the lanes given are written; the second update of the same changes no byte."""
    recorded(receipt(name="a"))
    recorded(receipt(first(), again("n"), name="b"))
    before = Path(LOCK_NAME).read_text()
    recorded(receipt(first(), first("g", 1), name="a"))
    lanes = json.loads(Path(LOCK_NAME).read_text())["lanes"]
    assert [lane["counts"]["frames"] for lane in lanes.values()] == [2, 1]
    assert lanes["b"] == json.loads(before)["lanes"]["b"]
    changed = Path(LOCK_NAME).stat().st_mtime_ns
    recorded(receipt(first(), first("g", 1), name="a"))
    assert Path(LOCK_NAME).stat().st_mtime_ns == changed


@pytest.mark.parametrize("change", [{"verdict": "blind"}, {"status": "killed"}])
def test_what_was_not_seen_is_not_recorded(change: dict[str, str], capsys: Any) -> None:
    """Not even beside a good lane: all lanes given, or none."""
    good = saved(CLEAN, "good.json")
    bad = saved(receipt(name="bad", change=lambda raw: raw.update(change)))
    assert gate(good, bad, "--update", "--reason", "x") == 2
    assert "of configuration 'bad' is not recorded" in capsys.readouterr().err
    assert not Path(LOCK_NAME).exists()


@pytest.mark.parametrize(
    "content", ["{", "{}", "<<<<<<< ours\n", '{"schema": "compilediag.lock", "lanes": 1}']
)
def test_a_file_that_is_no_baseline_stays_as_it_is(content: str, capsys: Any) -> None:
    """Judging and updating are refused with exit code 2, and the message names the file."""
    Path(LOCK_NAME).write_text(content)
    saved(CLEAN)
    for arguments in (("r.json",), ("r.json", "--update", "--reason", "x")):
        assert gate(*arguments) == 2
        assert LOCK_NAME in capsys.readouterr().err
    assert Path(LOCK_NAME).read_text() == content


def test_lanes(capsys: Any) -> None:
    """Two of one name are refused; --configuration renames one."""
    one, two = saved(receipt(name="a"), "a.json"), saved(receipt(name="b"), "b.json")
    assert gate(one, two, "--update") == 0
    assert gate(one, two) == 0
    assert "gate of 2 configurations: passed" in capsys.readouterr().out
    assert gate(one, saved(receipt(name="a"), "c.json"), "--fail-on", "frames>1") == 2
    assert "a.json and c.json are both of the configuration 'a'" in capsys.readouterr().err
    assert gate(one, "--configuration", "b") == 0
    assert gate(one, two, "--configuration", "b") == 2
    assert gate(one, "--configuration", "z") == 2
    assert "has no configuration 'z'" in capsys.readouterr().out


def test_a_failure_comes_before_what_cannot_be_judged() -> None:
    """One lane fails and another is blind: the exit code is 3; the blind one alone gives 2."""
    blind = saved(receipt(name="b", change=lambda raw: raw.update(verdict="blind")), "b.json")
    assert gate(blind, "--fail-on", "recompiles>0") == 2
    assert gate(blind, saved(CAUSE), "--fail-on", "recompiles>0") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.json",), "There is no receipt at none.json"),
        (("r.json", "--baseline", "none.lock"), "there is no baseline none.lock"),
        (("r.json", "--baseline", "."), "cannot be read"),
        (("r.json", "--format", "sarf"), "did you mean 'sarif'"),
        (("r.json", "--format", "json="), "names no file"),
        (("r.json", "--format", "json", "--format", "junit"), "cannot go to stdout together"),
        (("r.json", "--format", "json=x", "--format", "md=./x"), "to the same file"),
        (("r.json", "--configuration", " "), "--configuration is empty"),
        (("r.json", "--reason", "x"), "--reason goes with --update"),
        (("r.json", "--update", "--reason", " "), "--reason is empty"),
        (("r.json", "--update", "--fail-on", "frames>1"), "leave out --fail-on"),
        (("r.json", "--update", "--require-proved-fix"), "leave out --require-proved-fix"),
        (("r.json", "--reason-for", "n", "x"), "--reason goes with --update"),
        (("r.json", "--fail-on", "recompile>0"), "did you mean 'recompiles'"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], message: str, capsys: Any) -> None:
    """Exit code 2, one sentence, nothing written."""
    saved(CLEAN)
    limits = (
        () if {"--update", "--fail-on", "--reason"} & set(arguments) else ("--fail-on", "frames>9")
    )
    assert gate(*arguments, *limits) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == [".git", "r.json"]


def test_formats_go_to_files_beside_the_screen(capsys: Any) -> None:
    """A new folder is made; the terminal's text stays on stdout; no temporary file is left."""
    code = gate(
        saved(CAUSE),
        *("--fail-on", "recompiles>0"),
        *("--format", "json=out/gate.json", "--format", "sarif=out/gate.sarif"),
    )
    assert code == 3
    assert "gate failed" in capsys.readouterr().out
    assert sorted(path.name for path in Path("out").iterdir()) == ["gate.json", "gate.sarif"]
    assert json.loads(Path("out/gate.sarif").read_text())["version"] == "2.1.0"


def test_a_file_that_cannot_be_written(capsys: Any) -> None:
    """An error, and not the gate's verdict."""
    Path("file").touch()
    assert gate(saved(CLEAN), "--fail-on", "recompiles>0", "--format", "md=file/x.md") == 2
    assert "file" in capsys.readouterr().err


def test_in_a_job_of_github(monkeypatch: Any, capsys: Any) -> None:
    """Annotations in the log, the table in the summary, without an option."""
    summary = Path("summary.md")
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert gate(saved(CAUSE), "--fail-on", "recompiles>0") == 3
    printed = capsys.readouterr().out
    assert "::error file=app.py,line=10," in printed
    assert "gate failed" in printed
    assert summary.read_text().startswith("before\n")
    assert "recompiles" in summary.read_text()


def test_a_summary_that_is_full_changes_no_verdict(monkeypatch: Any, capsys: Any) -> None:
    """GitHub drops a summary above 1 MiB whole, so what stands there is left alone."""
    Path("summary.md").write_text("x" * (1024 * 1024 - 10))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    assert gate(saved(CLEAN), "--fail-on", "recompiles>0", "--format", "github") == 0
    assert Path("summary.md").stat().st_size == 1024 * 1024 - 10
    assert "summary was not written" in capsys.readouterr().err


def test_a_reason_for_one_item(capsys: Any) -> None:
    """What none names is refused, and a name that no item has; then nothing is written."""
    both = saved(receipt(first(), again("n"), again("m", 2, 2)))
    assert gate(both, "--update", "--reason-for", "CD107 n", "warm-up") == 2
    assert "would newly allow in configuration 'train': CD107 m" in capsys.readouterr().err
    named = ("--reason-for", "CD107 n", "warm-up", "--reason-for", "CD107 m", "two sizes")
    assert gate(both, "--update", *named, "--reason-for", "CD999", "x") == 2
    assert "--reason-for 'CD999' names nothing" in capsys.readouterr().err
    assert not Path(LOCK_NAME).exists()
    assert gate(both, "--update", *named) == 0


def test_the_base_needs_a_baseline_and_a_repository_that_has_it(capsys: Any) -> None:
    """Sentences that say what is missing; a name like an option of git is none."""
    assert gate(saved(CLEAN), "--fail-on", "recompiles>0", "--base", "main") == 2
    assert "there is no compilediag.lock.json" in capsys.readouterr().err
    recorded(CLEAN)
    assert gate(saved(CLEAN), "--base", "--output=x") == 2
    assert "git has no '--output=x' here" in capsys.readouterr().err


def test_the_latest_run_must_be_of_this_code(capsys: Any) -> None:
    """A receipt without commit and digests is judged where it is named; nobody named the latest."""
    run = Path(".compilediag", "20261122T100000Z-train-1")
    write_receipt(CLEAN, run / "receipt.json")
    (run.parent / "latest").symlink_to(run.name)
    limits = ("--fail-on", "recompiles>0")
    assert gate(*limits) == 2
    assert "the receipt does not record which code it is of" in capsys.readouterr().out
    assert gate(*limits, "--any-code") == 0
    assert gate(str(run), *limits) == 0
    assert "! the receipt does not record" in capsys.readouterr().out
