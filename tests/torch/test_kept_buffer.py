"""A batch that is packed into a kept buffer: every step has the batch that it had, and code that
may hold a batch of an earlier step is not edited."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from compilediag.fixes.codemods.edit import Edit, EditImpossible, edited

torch = pytest.importorskip("torch")
pytest.importorskip("libcst")

HEAD = """\
import torch
import torch.nn.functional as F

torch.manual_seed(0)
LENGTH, WIDTH = 6, 3
seen, history, tensors = [], [], set()
LENGTHS = ([6, 4, 1], [2, 6, 5], [3, 3], [1, 2, 3], [6, 0, 2])
steps = [[torch.randn(n, WIDTH) for n in lengths] for lengths in LENGTHS]
net = torch.compile(torch.nn.Linear(WIDTH, 1), backend="eager")


def record(batch):
    seen.append(batch.tolist())
    tensors.add(batch.data_ptr())


"""

IN_A_FUNCTION = """\
def pack(rows):
    batch = torch.zeros(len(rows), LENGTH, WIDTH)  # here
    for place, row in enumerate(rows):
        batch[place, : len(row)] = row
    return batch


for rows in steps:
    batch = pack(rows)
    record(batch)
"""

IN_THE_LOOP = """\
for rows in steps:
    {fill}  # here
    {loop}
        {store}
    record(batch)
"""

WITH_LENGTHS = """\
def pack(rows, device):
    lengths = torch.tensor([len(row) for row in rows])
    batch = torch.full((4, LENGTH, WIDTH), -1.0, device=device)  # here
    for place in range(len(rows)):
        batch[place, LENGTH - len(rows[place]) :] = rows[place]
    return batch, lengths


def train():
    for rows in steps:
        batch, lengths = pack(rows, device="cpu")
        net(batch)
        mask = torch.arange(LENGTH) < lengths[:, None]
        record(batch)


train()
"""

FLAT = """\
def pack(rows):
    end = 0
    batch = torch.zeros(20, WIDTH)  # here
    for row in rows:
        batch[end : end + len(row)] = row
        end += len(row)
    return batch


for rows in steps:
    record(pack(rows))
"""


def loop(
    fill: str = "batch = torch.zeros(len(rows), LENGTH, WIDTH)",
    over: str = "for place, row in enumerate(rows):",
    store: str = "batch[place, : len(row)] = row",
) -> str:
    return IN_THE_LOOP.format(fill=fill, loop=over, store=store)


DEEP = "batch = torch.zeros(size=(4, 2, LENGTH, WIDTH))"
WIDE = "batch = torch.zeros(4, LENGTH, 5)"


def with_edit(program: str) -> str:
    text = HEAD + dedent(program)
    line = next(i for i, each in enumerate(text.splitlines(), 1) if each.endswith("# here"))
    return edited(text, [Edit("f.py", line, "kept_buffer", ("batch",))])


def run(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(text, "f.py", "exec"), found)
    return found


@pytest.mark.parametrize(
    ("program", "tensors"),
    [
        (IN_A_FUNCTION, 2),  # steps have three rows, then two, then three
        (WITH_LENGTHS, 1),
        (FLAT, 1),
        (loop(), 2),
        (loop(fill="batch = torch.zeros((4, LENGTH, WIDTH), dtype=torch.float64)"), 1),
        (loop(fill="batch = rows[0].new_zeros(4, LENGTH, WIDTH)"), 1),
        (loop(fill="batch = torch.full((4, LENGTH + 1, WIDTH), 7.0)"), 1),
        (loop(DEEP, store="batch[place, :, : len(row), ...] = row"), 1),
        (loop(WIDE, store="batch[place, : row.size(0), : row.shape[1]] = row"), 1),
        (loop(store="batch[place, 0 : len(row)].copy_(row)"), 2),
        (loop(fill="batch = torch.zeros(4, WIDTH)", store="batch[place] = row.sum(0)"), 1),
        (loop(over="for place, (row, again) in enumerate(zip(rows, rows)):"), 2),
    ],
)  # fmt: skip
def test_every_step_has_the_batch_that_it_had(program: str, tensors: int) -> None:
    plain, changed = run(HEAD + dedent(program)), run(with_edit(program))
    assert changed["seen"] == plain["seen"]
    assert len(plain["seen"]) == 5
    assert len(changed["tensors"]) <= tensors + 1


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ("history.append(batch)", "`history.append` may keep"),
        ("history.append(batch[:1].T)", "`history.append` may keep"),
        ("history.append((batch,))", "`history.append` may keep"),
        ("history += [batch]", "`history += "),
        ("history = history + [batch]", "may keep"),
        ("last = batch.view(-1)\n    history.append(last)", "`history.append` may keep"),
        ("for each in batch:\n        history.append(each)", "`history.append` may keep"),
        ("history.append(batch.reshape(-1).detach())", "`history.append` may keep"),
        ("history.append(F.dropout(batch))", ""),
        ("history.append(batch.mean())", ""),
        ("for at, (a, b) in enumerate(zip(batch, batch)):\n        print(at, a, b)", "may keep"),
        ("net.last = batch", "`net.last` may keep"),
        ("steps[0][0] = batch", "may keep"),
        ("cache = {'x': batch}\n    history.append(cache)", "`history.append` may keep"),
        ("print(net(batch), len(batch), batch.shape, f'{batch}', batch is None)", ""),
        ("total = batch * 2 + 1\n    history.append(total)", ""),
        ("there = batch.to('cpu', non_blocking=True)", "non_blocking"),
        ("array = batch.numpy()", "`batch.numpy()` may keep"),
        ("unknown(batch)", "`unknown` may keep"),
        ("show = lambda: batch", "more than one function"),
        ("batch = batch * 2", "assigned more than once"),
        ("del batch", "may keep"),
    ],
)
def test_what_may_hold_a_batch_of_an_earlier_step_is_not_edited(use: str, why: str) -> None:
    program = loop() + f"    {use}\n"
    if not why:
        assert "kept_batch" in with_edit(program)
        return
    with pytest.raises(EditImpossible) as error:
        with_edit(program)
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("first, second = pack(steps[0]), pack(steps[1])\n", "not called at one place"),
        ("pack.rows = 3\n", "not called at one place"),
        ("def other():\n    return record\n", ""),
    ],
)
def test_a_function_that_returns_it_is_called_at_one_place(more: str, why: str) -> None:
    if not why:
        assert "global kept_batch" in with_edit(IN_A_FUNCTION + more)
        return
    with pytest.raises(EditImpossible, match=why):
        with_edit(IN_A_FUNCTION + more)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (loop(store="if len(row): batch[place, : len(row)] = row"), "condition"),
        (loop(store="batch[place, : len(row)] += row"), "does not write a row"),
        (loop(store="batch[0, : len(row)] = row"), "row after row"),
        (loop(store="batch[place, : next(sizes)] = row"), "may do more"),
        (loop(store="batch[place, : len(row), 1] = row[:, 1]"), "not all of a row"),
        (loop(store="batch[place, ::2] = row"), "may do more"),
        (loop(over="for place, row in enumerate(iter(rows)):"), "how many rows"),
        (loop(over="for place, row in enumerate(rows, 1):"), "number of the row"),
        (loop(fill="batch = torch.ones(4, LENGTH, WIDTH)"), "is not edited"),
        (loop(fill="batch = torch.zeros(4, 6, 3, requires_grad=True)"), "other arguments"),
        (loop(fill="batch = torch.zeros(4, LENGTH, WIDTH); batch[0] = 1"), "of its own"),
        (FLAT.replace("end += len(row)", "end += 1"), "after the loop is not known"),
        (FLAT.replace("    end = 0\n", "").replace("(rows):", "(rows, end=0):"), "not known"),
        (IN_A_FUNCTION.replace("    for place", "    batch[0] = 1\n    for place"), "no loop"),
        (loop().replace("for rows in steps:\n", "rows = steps[0]\nif rows:\n"), "again and again"),
    ],
)  # fmt: skip
def test_other_ways_of_packing_are_not_edited(program: str, why: str) -> None:
    with pytest.raises(EditImpossible, match=why):
        with_edit(program)
