"""The text log of torch, counted: recorded logs of three versions, and bytes of every kind."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag.readers.storage import CHUNK_BYTES
from compilediag.readers.torch_logs import LINE_LIMIT, read_text_log
from compilediag.runs.supervised.assemble import read_logs

DATA = Path(__file__).parents[1] / "data"
VERSIONS = ("2.7.1", "2.13.0", "2.15.0")
P = "V1120 17:12:26.334000 8288 torch/_dynamo/guards.py:5396] [0/1] [__recompiles] "
B = "V1120 17:12:27.224000 8288 torch/_dynamo/symbolic_convert.py:5131] [1/0] [__graph_breaks] "


def recorded(name: str) -> bytes:
    return (DATA / name).read_bytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_skips(version: str) -> None:
    """Frames that a break sends to eager name the same places in both wordings of a skip."""
    log = read_text_log([recorded(f"torch_logs_skips_{version}.txt")])
    mine = {line for file, line in log.break_sites if file == "/home/user/skips.py"}
    assert mine == {18, 24, 29, 34}
    assert len(log.break_sites) == 5, "the fifth is a line of torch/nn/modules/module.py"
    assert log.recompiling_lines == 0
    assert log.unknown_lines == 0


@given(size=st.integers(min_value=1, max_value=4096))
@settings(max_examples=20, deadline=None)
def test_chunks_do_not_matter(size: int) -> None:
    """The same bytes give the same counts however they are cut."""
    whole = recorded("torch_logs_2.13.0.txt")
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    assert read_text_log(pieces) == read_text_log([whole])


@given(cut=st.integers(min_value=0, max_value=17_000))
@settings(max_examples=50, deadline=None)
def test_a_torn_tail_never_invents(cut: int) -> None:
    """A log cut anywhere has no more recompiles, limits or sites than the whole one."""
    whole = recorded("torch_logs_2.7.1.txt")
    part, all_of_it = read_text_log([whole[:cut]]), read_text_log([whole])
    assert part.recompiling_lines <= all_of_it.recompiling_lines
    assert part.limit_warnings <= all_of_it.limit_warnings
    assert {line for _, line in part.break_sites} <= {1, 2} | {
        line for _, line in all_of_it.break_sites
    }, "a line number may be cut short (14 to 1, 23 to 2), nothing else is new"
    assert part.torn == (cut > 0 and whole[cut - 1 : cut] != b"\n")


@given(st.binary(max_size=4096))
@settings(max_examples=200, deadline=None)
def test_any_bytes(data: bytes) -> None:
    """Bytes that are no log at all raise nothing and count as nothing."""
    log = read_text_log([data])
    assert log.recompiling_lines >= 0
    assert log.unknown_lines <= data.count(b"\n") + data.count(b"\r") + 1


@given(st.lists(st.binary(max_size=40), max_size=30), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_foreign_lines_between_records(noise: list[bytes], random: object) -> None:
    """The program's own output between two records changes no count (torch repeats its prefix)."""
    lines = recorded("torch_logs_2.13.0.txt").splitlines(keepends=True)
    mixed: list[bytes] = []
    for index, line in enumerate(lines):
        mixed.append(line)
        if index < len(noise):
            mixed.append(noise[index].replace(b"]", b"") + b"\n")
    mixed_log, plain = read_text_log(mixed), read_text_log(lines)
    assert mixed_log.recompiling_lines == plain.recompiling_lines
    assert mixed_log.break_sites == plain.break_sites


def log_of(text: str) -> bytes:
    return text.encode()


def test_restart_and_compiled_autograd_ids() -> None:
    """The compile id may be missing, restarted (`0/0_1`), or of compiled autograd (`!1/1/0`)."""
    heads = ["", " [0/0_1]", " [!1/1/0]"]
    text = "".join(
        f"V1120 17:12:26.334000 1 torch/x.py:1]{head} [__recompiles] "
        "Recompiling function f in m.py:1\n"
        for head in heads
    )
    assert read_text_log([log_of(text)]).recompiling_lines == 3


def test_a_changed_wording_is_counted_as_unknown() -> None:
    """A head that torch does not print today is neither counted nor passed over."""
    text = (
        f"{P}Recompilation of f (m.py:1)\n"
        f"{B}Break of the graph at m.py:3\n"
        "Recompiling function f in m.py:1\n"
        "Graph break in user code at m.py:3\n"
    )
    log = read_text_log([log_of(text)])
    assert (log.recompiling_lines, log.break_sites, log.unknown_lines) == (0, frozenset(), 4)


def test_body_lines_that_quote_a_head_are_not_counted() -> None:
    """Source lines in a stack are indented: quoting torch's words does not make a record."""
    text = (
        f"{B}Graph break in user code at m.py:3\n"
        f"{B}Graph Break Reason: x\n"
        f'{B}  File "m.py", line 3, in f\n'
        f'{B}    log("Graph break in user code at n.py:4")\n'
    )
    log = read_text_log([log_of(text)])
    assert log.break_sites == {("m.py", 3)}
    assert log.unknown_lines == 0


def test_two_processes_in_one_file() -> None:
    """Records of two processes may interleave line by line; the process id keeps them apart."""
    first, second = B, B.replace(" 8288 ", " 9000 ")
    text = (
        f"{first}Graph break in user code at m.py:3\n"
        f"{second}Graph break in user code at m.py:5\n"
        f"{first}Graph Break Reason: x\n"
        f"{second}Graph Break Reason: y\n"
    )
    log = read_text_log([log_of(text)])
    assert (log.break_sites, log.unknown_lines) == ({("m.py", 3), ("m.py", 5)}, 0)


def test_verbose_recompiles() -> None:
    """`recompiles_verbose` replaces the plain artifact and prints other body lines."""
    verbose = P.replace("__recompiles", "__recompiles_verbose")
    text = (
        f"{verbose}Recompiling function f in m.py:1\n"
        f"{verbose}    triggered by the following guard failure(s):\n"
        f"{verbose}    guard 0 failures:\n"
        f"{verbose}    - 0/0: n == 2\n"
        f"{verbose}\n"
    )
    log = read_text_log([log_of(text)])
    assert (log.recompiling_lines, log.unknown_lines) == (1, 0)


def test_limits_and_profiles() -> None:
    """Both limits of Dynamo count, under their old and new names; a profile in use is kept."""
    w = "W1120 17:12:26.334000 8288 torch/_dynamo/convert_frame.py:1994] [0/3] "
    i = "I1120 17:12:26.334000 8288 torch/_dynamo/pgo.py:803] [0/0] "
    text = (
        f"{w}torch._dynamo hit config.recompile_limit (3)\n"
        f"{w}torch._dynamo hit config.accumulated_recompile_limit (256)\n"
        f"{w}torch._dynamo hit config.cache_size_limit (8)\n"
        f"{w}   function: 'torch._dynamo hit config.recompile_limit' (m.py:1)\n"
        f"{i}get_code_state /cache/code_state_0.pkl hit local, 2 entries\n"
        f"{i}get_code_state using default\n"
    )
    log = read_text_log([log_of(text)])
    assert log.limit_warnings == 3
    assert log.profile_uses == ("get_code_state /cache/code_state_0.pkl hit local, 2 entries",)


def test_a_very_long_line_is_cut() -> None:
    """A line of any length costs bounded memory, and what follows it is still read."""
    long = b"x" * (3 * LINE_LIMIT)
    tail = log_of(f"\n{P}Recompiling function f in m.py:1\n")
    chunks = [long[:LINE_LIMIT], long[LINE_LIMIT:], tail]
    assert read_text_log(chunks).recompiling_lines == 1


def test_an_empty_log() -> None:
    """A run without recompiles leaves 0 bytes: nothing counted, nothing unknown, not torn."""
    log = read_text_log([])
    assert (log.recompiling_lines, log.limit_warnings, log.log_lines) == (0, 0, 0)
    assert (log.break_sites, log.unknown_lines, log.torn) == (frozenset(), 0, False)


def test_a_log_that_is_not_read_to_its_end_is_no_second_opinion(tmp_path: Path) -> None:
    """What many processes wrote into one file may be more than is read."""
    path = tmp_path / "torch_logs.txt"
    path.write_bytes(recorded("torch_logs_2.13.0.txt"))
    assert read_logs([str(path)]).over_limit is False
    path.write_bytes(
        recorded("torch_logs_2.13.0.txt") * (1 + (2 * CHUNK_BYTES) // path.stat().st_size)
    )
    cut = read_logs([str(path)], CHUNK_BYTES)
    assert cut.over_limit is True
    assert cut.recompiling_lines < read_logs([str(path)]).recompiling_lines
