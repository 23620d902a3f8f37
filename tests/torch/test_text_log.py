"""torch_logs.txt: what is left out of a long message, and of a long log, is counted in it."""

import logging

from compilediag.readers.torch_logs import read_text_log
from compilediag_harness.collectors.logs import TextLogFile
from compilediag_harness.torch_internals import torch_logs

RECOMPILES = "torch._dynamo.guards.__recompiles"


def record(message: str, name: str = RECOMPILES) -> logging.LogRecord:
    return logging.LogRecord(name, logging.DEBUG, "guards.py", 1, message, None, None)


def recompile(entries: int) -> logging.LogRecord:
    """What torch logs of a recompile: a line and its stack for each cache entry."""
    lines = [
        line
        for n in range(entries)
        for line in (f"    - 0/{n}: n == {n}", "    - User stack trace:", '    -   File "a.py"')
    ]
    head = ["Recompiling function f in /home/user/app.py:6", "    triggered by the following:"]
    return record("\n".join([*head, *lines]))


def written(path, *records: logging.LogRecord, limit_bytes: int = 1 << 20):
    file = TextLogFile(str(path), limit_bytes)
    for item in records:
        file.write(item, torch_logs.get_torch_formatter())
    file.close()
    return path.read_bytes()


def test_a_message_of_many_entries_keeps_its_ends(tmp_path):
    """Ten times the cache entries are not a byte more, and every line is accounted for."""
    found = {n: written(tmp_path / str(n), recompile(n)) for n in (5, 100, 1000)}
    assert len(found[1000]) <= len(found[100]) + 20
    for entries, text in found.items():
        log = read_text_log([text])
        assert (log.recompiling_lines, log.unknown_lines, log.over_limit) == (1, 0, False)
        shown = text.count(b"\n") - (log.lines_left_out > 0)
        assert shown + log.lines_left_out == 2 + 3 * entries
    assert b"0/999: n == 999" in found[1000]


def test_a_long_line_is_cut(tmp_path):
    """The text of a guarded value of a megabyte."""
    long = record("Recompiling function f in a.py:1\n    - " + "a" * 10**6)
    text = written(tmp_path / "log", long)
    assert len(text) < 10_000
    assert read_text_log([text]).unknown_lines == 0


def test_a_record_that_others_read_stays_as_it_is(tmp_path):
    """The program's own handlers see the whole message."""
    item = recompile(1000)
    before = item.getMessage()
    written(tmp_path / "log", item)
    assert item.getMessage() == before


def test_a_log_over_its_limit_says_so_once(tmp_path):
    """What comes after it is not in the file, and the file ends with whole lines."""
    text = written(tmp_path / "log", *[recompile(2)] * 100, limit_bytes=3000)
    log = read_text_log([text])
    assert len(text) < 4000
    assert (log.over_limit, log.unknown_lines, log.torn) == (True, 0, False)
    assert 0 < log.recompiling_lines < 100
    assert text.count(b"over its limit") == 1
