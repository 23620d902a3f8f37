"""Edits for code that needs a size, a list or a term: not where they would do something else."""

from __future__ import annotations

from textwrap import dedent

import pytest

from compilediag.fixes.codemods.edit import Edit, EditImpossible, edited

pytest.importorskip("libcst")

SCALE = """\
import torch
def scale(rows):
    if rows.size(0) == 6:  # here
        return rows * 0.5
    return rows * 0.25
"""


def changed(kind: str, text: str, *code: str) -> str:
    line = next(i for i, each in enumerate(text.splitlines(), 1) if "# here" in each)
    return edited(text, [Edit("f.py", line, kind, code)])


def test_a_tensor_that_holds_the_size_decides_the_branch() -> None:
    assert changed("branch_on_size", SCALE) == dedent("""\
        import torch
        def scale(rows):
            # here
            return torch.where(torch.full((), rows.size(0), device=rows.device) == 6, rows * 0.5, rows * 0.25)
        """)  # noqa: E501
    negative = SCALE.replace("rows.size(0) == 6", "rows.shape[-1] > 6")
    assert "torch.full((), rows.shape[-1], device=rows.device) > 6" in changed(
        "branch_on_size", negative
    )


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("rows.size(0) == 6", "rows.size(0) == limit", "does not compare a size with a number"),
        ("rows.size(0) == 6", "rows.numel() == 6", "does not compare a size with a number"),
        ("rows.size(0) == 6", "1 < rows.size(0) < 6", "is not a comparison of a size"),
        ("rows.size(0) == 6", "rows.size(dim) == 6", "does not compare a size with a number"),
        ("return rows * 0.5", "raise ValueError", ""),
        ("return rows * 0.5", "return rows.add_(1)", "`rows` is changed in a side"),
        ("return rows * 0.5", "return roll(rows)", "may do more than compute a value"),
        ("return rows * 0.5", "return [rows]", "is not a number or tensor"),
    ],
)
def test_a_branch_that_does_more_stays(before: str, after: str, why: str) -> None:
    assert before in SCALE
    with pytest.raises(EditImpossible) as error:
        changed("branch_on_size", SCALE.replace(before, after))
    assert why in str(error.value)


FUSE = """\
import torch
@torch.compile
def fuse(features, scale):  # here
    total = features[0] * 0
    for feature in features:
        total = total + feature.tanh()
    return total / len(features) * scale
"""


def test_a_list_is_padded_and_the_padding_is_left_out() -> None:
    text = changed("padded_list", FUSE, "features", "4")
    assert "    for feature, feature_present in zip(features, features_present):\n" in text
    assert "total = torch.where(feature_present, total + feature.tanh(), total)" in text
    assert "return total / features_number * scale" in text
    assert "            [*features, *padding],\n            scale,\n" in text
    assert text.index("@fuse_of_padded") < text.index("@torch.compile")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("total + feature.tanh()", "total + feature.log()", "may not be finite for padding"),
        ("total + feature.tanh()", "total / feature", "may not be finite for padding"),
        ("total = total + feature.tanh()", "total += feature", "not an assignment to a variable"),
        ("total = total + feature.tanh()", "last = feature", "may have no value before the loop"),
        ("total = total + feature.tanh()", "record(feature)", "not an assignment to a variable"),
        ("total = features[0] * 0", "total = features[1] * 0", "needs the list as it is"),
        ("total = features[0] * 0", "total = torch.stack(features)", "needs the list as it is"),
        ("total = features[0] * 0", "total = torch.zeros(len(features))", ""),
        ("total = features[0] * 0", "features = features[:2]", "is changed in the function"),
        ("* scale", "* feature", "is used behind the loop"),
        ("(features, scale)", "(features, *scale)", "more than arguments by place"),
        ("    for feature in features:\n        total = total + feature.tanh()\n", "", "no loop"),
    ],
)
def test_a_list_that_is_used_for_more_stays(before: str, after: str, why: str) -> None:
    assert before in FUSE
    with pytest.raises(EditImpossible) as error:
        changed("padded_list", FUSE.replace(before, after), "features", "4")
    assert why in str(error.value)


TERMS = """\
import torch
for step in range(4):
    loss = loss_of(step)
    if step >= 2:
        loss = loss + model.weight.log().sum()
        loss += model.bias.tanh().sum()
    if step == 3:
        print(step)
    loss.backward()  # here
"""


def test_a_term_is_left_out_by_a_number() -> None:
    text = changed("every_term", TERMS)
    chosen = "torch.where(torch.tensor(step >= 2), model.weight, 1.0).log().sum()"
    assert f"loss = loss + torch.where(torch.tensor(step >= 2), {chosen}, 0.0)\n" in text
    assert "torch.where(torch.tensor(step >= 2), model.bias.tanh().sum(), 0.0)\n" in text
    assert "    if step == 3:\n        print(step)\n" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss += model.bias", "loss *= model.bias"),
        ("loss += model.bias.tanh().sum()", "loss = other(step)"),
        ("loss += model.bias.tanh().sum()", "loss += loss.detach()"),
        ("loss += model.bias.tanh().sum()", "loss += draw(step)"),
        ("loss += model.bias.tanh().sum()", "torch.randn(loss)"),
        ("if step >= 2:", "if wanted(step):"),
        ("loss.backward()", "(loss * 2).backward()"),
        ("loss = loss + model.weight.log().sum()\n        loss +=", "other +="),
    ],
)
def test_what_is_more_than_a_term_stays(before: str, after: str) -> None:
    assert before in TERMS
    with pytest.raises(EditImpossible):
        changed("every_term", TERMS.replace(before, after))


SUMMED = """\
import torch
class Scorer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = [number % 7 for number in range(9)]
    def forward(self, batch):
        return batch / sum(self.weights) / len(self.weights)  # here
"""


def test_what_is_computed_of_a_list_is_computed_where_it_is_made() -> None:
    text = changed("once_in_init", SUMMED.replace(" / len(self.weights)", ""))
    assert "range(9)]\n        self.weights_sum = sum(self.weights)\n" in text
    assert "return batch / self.weights_sum  # here" in text


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("", "", "`self.weights` is used for more"),
        ("len(self.weights)", "len(self.weights.append(1))", "is used for more"),
        (" / len(self.weights)", "; vars(self)['weights'] = 3", "is used for more"),
        (
            " / len(self.weights)",
            "  # here\nmodel = Scorer()\nmodel.weights = []",
            "is used for more",
        ),
        ("__init__(self):", "made(self):", "is not made by a statement of `__init__`"),
        ("[number % 7 for number in range(9)]", "WEIGHTS", "may be another variable's too"),
        ("sum(self.weights)", "total(self.weights)", ""),
    ],
)
def test_a_list_that_may_change_is_left_alone(before: str, after: str, why: str) -> None:
    assert before in SUMMED
    text = SUMMED.replace(before, after) if before else SUMMED
    if before and "len" not in before:
        text = text.replace(" / len(self.weights)", "")
    with pytest.raises(EditImpossible) as error:
        changed("once_in_init", text)
    assert why in str(error.value)


INSTANCES = """\
import torch
from torch import nn
class Layer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.kind = kind
    def forward(self, x):
        return x + getattr(torch, self.kind)(self.mix(x))  # here
"""


def test_a_function_that_an_instance_has_by_name_is_chosen_by_a_buffer() -> None:
    text = changed("chosen_by_buffer", INSTANCES, "kind", "relu", "tanh")
    assert "return x + by_kind(self.kind_is, self.mix(x))  # here" in text
    assert "result = torch.where(chosen[1], torch.tanh(value), result)" in text
    assert "if kind not in ('relu', 'tanh'):\n            raise ValueError(" in text
    assert "[kind == each for each in ('relu', 'tanh')]), persistent=False)" in text


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("self.kind = kind", "self.kind = read(kind)", "is not set once"),
        ("# here", "# here\nLayer('relu').kind = 'tanh'", "is used for more"),
        ("def __init__(self, kind)", "def set(self, kind)", "is not set once"),
        ("(nn.Module)", "(Base)", ""),
        ("(self.mix(x))", "(x, 2)", "takes more than one argument"),
        ("getattr(torch, self.kind)", "getattr(self, self.kind)", "does not choose one function"),
    ],
)
def test_an_attribute_that_is_more_than_a_name_stays(before: str, after: str, why: str) -> None:
    assert before in INSTANCES
    text = INSTANCES.replace(before, after)
    if after == "(Base)":
        text = text.replace("forward", "run").replace("super().__init__()", "pass")
    with pytest.raises(EditImpossible) as error:
        changed("chosen_by_buffer", text, "kind", "relu", "tanh")
    assert why in str(error.value)


def test_functions_that_draw_or_are_not_finite_are_no_choice() -> None:
    for value in ("rand_like", "log", "load"):
        with pytest.raises(EditImpossible):
            changed("chosen_by_buffer", INSTANCES, "kind", "relu", value)
