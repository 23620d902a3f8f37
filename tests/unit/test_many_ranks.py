"""Traces of many ranks, read a few to a task: the receipts of a run that is held as a whole."""

from pathlib import Path
from typing import Any

import pytest
from rank_folders import folder_of_ranks

from compilediag import cli
from compilediag.diagnosis.ranks import divergence as choice
from compilediag.diagnosis.ranks.divergence import MIN_RANKS
from compilediag.readers import parallel
from compilediag.readers.inputs import FOREIGN, RUN, TRACE, Input
from compilediag.readers.journal import ProcessJournal
from compilediag.readers.parallel import make_process_pool
from compilediag.runs.offline import many_ranks
from compilediag.runs.offline.many_ranks import (
    ReceiptOptions,
    are_many,
    build_receipt_of_many,
    find_lowest_ranks,
)
from compilediag.runs.offline.sources import find_sources, parse_named_rank, read_source


@pytest.mark.parametrize(("kept", "read_again"), [(0, [0, 1]), (4096, [1])])
def test_only_listed_ranks_are_read_again(tmp_path, monkeypatch, kept, read_again) -> None:
    """Each trace once; those of the listed ranks, unless they are few events of a low rank; and for
    what differs, the rank that does and one that it is compared with."""
    for module in (choice, many_ranks):
        monkeypatch.setattr(module, "MIN_RANKS", 0)
    monkeypatch.setattr(choice, "MAX_RANKS", 2)
    monkeypatch.setattr(many_ranks, "MAX_RANKS", 1)
    monkeypatch.setattr(many_ranks, "MAX_RETURNED_EVENTS", kept)
    read: list[int | None] = []

    def counted(source: Input) -> tuple[ProcessJournal, ...]:
        read.append(parse_named_rank(source))
        return read_source(source)

    monkeypatch.setattr(many_ranks, "read_source", counted)
    sources = find_sources([str(folder_of_ranks(tmp_path / "in"))])
    made = build_receipt_of_many(sources, ReceiptOptions("lane", None, str(tmp_path / "out")))
    assert made.ranks.reported == 2
    assert read[:4] == [0, 1, 3, 4]
    assert sorted(read[4:], key=str) == sorted([0, 1, *read_again])


def test_the_lowest_ranks_are_kept_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without a rank last, as the receipt shows them."""
    monkeypatch.setattr(many_ranks, "MAX_RANKS", 3)
    names = ["x.log", "trace_rank_10_a.log", "trace_rank_2_a.log", "y.log", "trace_rank_1_a.log"]
    assert find_lowest_ranks([Input(f"in/{name}", TRACE) for name in names]) == {4, 2, 1}
    assert find_lowest_ranks([Input(f"in/{name}", TRACE) for name in names[:2]]) == {0, 1}


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """What it writes and draws is the same whichever way it goes."""
    folder = folder_of_ranks(tmp_path / "in")
    drawn: list[str] = []
    for way, fewest in (("held", MIN_RANKS), ("many", 1)):
        monkeypatch.setattr(many_ranks, "MIN_RANKS", fewest)
        out = tmp_path / way
        assert cli.main(["analyze", str(folder), "--ranks", "-o", str(out)]) == 0
        drawn.append(capsys.readouterr().out.replace(str(out), "OUT"))
    assert drawn[0] == drawn[1]
    names = [
        [str(path.relative_to(tmp_path / way)) for path in sorted((tmp_path / way).rglob("*"))]
        for way in ("held", "many")
    ]
    assert names[0] == names[1]
    assert "rank-4/receipt.json" in names[0]


def test_many_are_more_than_are_always_listed() -> None:
    """Only what holds processes counts."""
    traces = [Input(f"{number}", TRACE if number % 2 else RUN) for number in range(MIN_RANKS)]
    foreign = [Input("x", FOREIGN)] * 1000
    assert not are_many([*traces, *foreign])
    assert are_many([*traces, Input("one more", TRACE)])


@pytest.mark.parametrize(("threads", "method"), [(["7"], "fork"), (["7", "8"], "forkserver")])
def test_a_process_with_threads_is_not_forked(monkeypatch, threads: list[str], method: str) -> None:
    """A fork copies locks as they are, held by threads that it does not copy."""

    def tasks(folder: str) -> list[str]:
        assert folder == "/proc/self/task"
        return threads

    monkeypatch.setattr(parallel.os, "listdir", tasks)
    monkeypatch.setattr(parallel.sys, "platform", "linux")
    monkeypatch.setattr(parallel.sys, "version_info", (3, 11))
    pool: Any = make_process_pool(1)
    assert pool._mp_context.get_start_method() == method
