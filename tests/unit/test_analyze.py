"""`compilediag analyze` as a user types it: receipts of traces, logs and folders of them."""

import gzip
import shutil
from pathlib import Path

import pytest
from command_line import analyze

from compilediag import cli

DATA = Path(__file__).parents[1] / "data"
TRACES = DATA / "traces"


def test_a_given_world_size(tmp_path: Path) -> None:
    """The highest rank may be among those that are missing."""
    receipt = analyze(tmp_path / "out", TRACES / "ranks", "--world-size", 3)
    assert receipt["ranks"]["missing"] == [2]


def test_a_damaged_trace_gives_what_it_has(tmp_path: Path) -> None:
    """Half a record is cut away: the rest counts, and the verdict is blind."""
    whole = gzip.decompress((TRACES / "breaks_inflated.log.gz").read_bytes())
    path = tmp_path / "cut.log"
    path.write_bytes(whole[: whole.rindex(b'"compilation_metrics"') + 100])
    receipt = analyze(tmp_path / "out", path)
    assert receipt["completeness"]["journal_torn_tail"] is True
    assert (receipt["verdict"], receipt["compile"]["compiles"]) == ("blind", 3)


def test_foreign_files_are_left_out_and_named(tmp_path: Path) -> None:
    """A folder of traces holds other things; no name in it becomes a path of ours."""
    shutil.copy(TRACES / "break_in_loop.log.gz", tmp_path / "a.log.gz")
    (tmp_path / "notes.md").write_text("nothing of torch's")
    (tmp_path / "link.log").symlink_to("/etc/hostname")
    receipt = analyze(tmp_path / "out", tmp_path / "a.log.gz", tmp_path)
    told = receipt["extensions"]["analyze"]
    assert (told["read"]["trace"], told["left_out"]) == (1, ["notes.md"])


def test_a_text_log_beside_a_trace_is_a_second_opinion(tmp_path: Path) -> None:
    """Its counts are compared: of another run it disagrees, and the verdict is blind."""
    receipt = analyze(
        tmp_path / "out", TRACES / "breaks_inflated.log.gz", DATA / "torch_logs_2.13.0.txt"
    )
    assert receipt["completeness"]["sources"] == {
        "events": True, "metrics": True, "text_log": True, "agree": False,
    }  # fmt: skip
    assert "CD903" in {item["rule"] for item in receipt["findings"]}


def test_without_an_output_folder_it_is_the_latest_run(tmp_path: Path, monkeypatch, capsys) -> None:
    """`show` and `explain` go on from there."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["analyze", str(TRACES / "breaks_inflated.log.gz")]) == 0
    assert cli.main(["explain", "1"]) == 0
    assert "mode" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "there is no file or folder"), (b"", "it is empty"), (b"\0\1\2", "nothing of torch")],
)
def test_what_cannot_be_used_is_refused(content: bytes | None, said: str, tmp_path, capsys) -> None:
    """With exit code 2, a sentence, and nothing written."""
    path = tmp_path / "input"
    if content is not None:
        path.write_bytes(content)
    assert cli.main(["analyze", str(path), "-o", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_views_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """As those of `show`."""
    assert cli.main(["analyze", str(TRACES), "--json", "--md"]) == 2
    assert "give one" in capsys.readouterr().err
