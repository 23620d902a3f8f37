"""The learning rate of an optimizer as a tensor: the exact text, and where it is refused."""

from __future__ import annotations

import pytest

from compilediag.fixes.codemods.edit import Edit, EditImpossible, edited

pytest.importorskip("libcst")


def as_tensor(text: str) -> str:
    return edited(text, [Edit("", 1, "rate_as_tensor")])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.optim.Adam(p, lr=1e-3)  # a", "torch.optim.Adam(p, lr=torch.tensor(1e-3))  # a"),
        ("torch.optim.SGD(p, args.lr)", "torch.optim.SGD(p, torch.tensor(args.lr))"),
        (
            'torch.optim.SGD([{"params": p, "lr": 1}])',
            'torch.optim.SGD([{"params": p, "lr": torch.tensor(1)}])',
        ),
    ],
)
def test_where_the_optimizer_is_made(before: str, after: str) -> None:
    assert as_tensor(f"import torch\no = {before}\n") == f"import torch\no = {after}\n"


def test_an_imported_optimizer() -> None:
    text = "import torch\nfrom torch.optim import AdamW as Best\no = Best(p, lr=rate)\n"
    assert as_tensor(text) == text.replace("lr=rate", "lr=torch.tensor(rate)")


def test_the_rate_is_changed_in_place_and_read_as_a_number() -> None:
    text = """\
import torch
o = torch.optim.Adam(p, lr=0.1)
o.param_groups[0]["lr"] = warm(3)  # first
for group in o.param_groups:
    group["lr"] *= 0.5
    print(group['lr'])
"""
    wanted = (
        text.replace("0.1", "torch.tensor(0.1)")
        .replace('["lr"] = warm(3)', '["lr"].fill_(warm(3))')
        .replace('["lr"] *= 0.5', '["lr"].mul_(0.5)')
        .replace("['lr']", "['lr'].item()")
    )
    assert as_tensor(text) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("o = torch.optim.Adam(p)", "without a learning rate"),
        ("o = torch.optim.Adam(p, lr=None and 3)", "may not be a number"),
        ("o = make(p, lr=0.1)", "makes 0 optimizers"),
        ("o = [torch.optim.SGD(p, lr=1), torch.optim.SGD(q, lr=1)]", "makes 2 optimizers"),
        ("o = torch.optim.SGD([{'params': p}, {'params': q}], lr=1)", "change it together"),
        ("o = torch.optim.SGD(p, lr=1)\nconfig['lr'] = 3", "may be of something else"),
        ("o = torch.optim.SGD(p, lr=1)\na = o.param_groups[0]['lr'] = 3", "more than one name"),
    ],
)
def test_what_is_not_evident(text: str, why: str) -> None:
    with pytest.raises(EditImpossible, match=why):
        as_tensor(f"import torch\n{text}\n")
