"""Programs with a known cause each, whose reproductions are tested."""

from pathlib import Path
from typing import NamedTuple

import msgspec
from command_line import DATA

from compilediag.receipt.file import read_receipt, write_receipt
from compilediag.receipt.schema.compiles import FindingRecord, FixRecord, Place
from compilediag.receipt.schema.receipt import Receipt


class Case(NamedTuple):
    """The part of a finding that a script is made of, as runs gave it."""

    rule: str
    variable: str
    expected: str | None
    actual: str | None
    source: str
    kind: str | None = None
    guard: str = ""

    @property
    def finding(self) -> FindingRecord:
        return FindingRecord(
            id="F1",
            rule=self.rule,
            slug="slug",
            severity="warning",
            confidence="exact",
            family="family",
            variable=self.variable,
            location=Place(file="model.py", line=7, function="forward"),
            ownership="user",
            count=1,
            steps=(1,),
            cost_s=0.1,
            evidence={
                "kind": self.kind,
                "expected": self.expected,
                "actual": self.actual,
                "source": self.source,
                "guard": self.guard,
            },
            fix=FixRecord(summary="", how=""),
        )


HOOK = "L['self']._modules['a']._forward_hooks[0].__closure__[0].cell_contents"

CASES = {
    "size": Case("CD105", "batch", "[16, 8]", "[6, 8]", "L['batch']", "size"),
    "size_named_x": Case("CD105", "x", "[16]", "[6]", "L['x']", "size"),
    "dtype": Case("CD106", "a", "torch.float32", "torch.float64", "L['a']", "dtype"),
    "requires_grad": Case(
        "CD106", "a", "requires_grad=False", "requires_grad=True", "L['a']", "requires_grad"
    ),
    "rank": Case("CD106", "a", "[4, 8]", "[4]", "L['a']", "rank"),
    "stride": Case(
        "CD106", "a", "stride [192, 64, 8, 1]", "stride [192, 1, 24, 3]", "L['a']", "stride"
    ),
    "int": Case("CD107", "n", "2", "3", "L['n']", "value"),
    "bool": Case("CD107", "causal", "True", "False", "L['causal']", "value"),
    "string": Case("CD107", "reduction", "'mean'", "'s{u}m'", "L['reduction']", "value"),
    "in_a_list": Case("CD107", "sizes[1]", "2", "3", "L['sizes'][1]", "value"),
    "in_a_dict": Case("CD107", "cfg['k']", "2.5", "0.5", "L['cfg']['k']", "value"),
    "enum": Case("CD107", "mode", None, "Mode.TEST", "L['mode']", "value"),
    "dict_key": Case("CD108", "d", "'mask' absent", "'mask' present", "L['d']", "members"),
    "length": Case("CD108", "features", "2 items", "3 items", "L['features']", "length"),
    "optional": Case("CD114", "mask", "None", "Tensor [4, 6] torch.float32", "L['mask']"),
    "attribute": Case("CD104", "self.count", "1", "2", "L['self'].count"),
    "attribute_below": Case(
        "CD104", "blocks.0.scale", "2.0", "1.5", "L['self']._modules['blocks']._modules['0'].scale"
    ),
    "attribute_of_an_object": Case("CD104", "cfg.flag", "False", "True", "L['cfg'].flag"),
    "instances": Case("CD117", "self.kind", "'relu'", "'tanh'", "L['self'].kind"),
    "closure": Case("CD101", "value", "False", "True", "L['value']", "value"),
    "closure_of_a_hook": Case("CD101", "capture", "False", "True", HOOK, "value"),
    "closure_key": Case("CD102", "stash", "'e' absent", "'e' present", HOOK, "members"),
    "closure_length": Case("CD102", "stash", "0 keys", "1 key", HOOK, "length"),
    "grown_buffer": Case(
        "CD103", "pos.pe", "[1, 16]", "[8, 16]", "L['self']._modules['pos']._buffers['pe']", "shape"
    ),
    "global": Case("CD109", "WEIGHT", "0", "1", "G['WEIGHT']"),
    "function": Case("CD110", "change", None, "code object", "L['change'].__code__", "code"),
    "grad_mode": Case("CD111", "grad_mode", None, None, "", "grad_mode"),
    "train_eval": Case("CD111", "self.training", None, None, "L['self'].training", "train_eval"),
    "matmul_precision": Case("CD111", "matmul_precision", None, None, "L", "matmul_precision"),
    "backend": Case("CD112", "backend", None, None, ""),
    "aliasing": Case(
        "CD113", "a and b", None, None, "", None, 'Duplicate tensors found: ["a", "b"]'
    ),
    "hook_set": Case("CD115", "Model[0]._forward_hooks", "1", None, ""),
    "size_one": Case(
        "CD118",
        "requests",
        "2 <= requests.size()[0]",
        None,
        "",
        "zero_one",
        "2 <= L['requests'].size()[0]",
    ),
}


def receipt_of(case: Case, file: str = "model.py") -> Receipt:
    place = Place(file=file, line=2, function="forward")
    finding = msgspec.structs.replace(case.finding, location=place)
    return msgspec.structs.replace(read_receipt(DATA / "findings.json"), findings=(finding,))


def write_receipt_and_program(folder: Path) -> None:
    """A receipt of one finding and the program it speaks of."""
    write_receipt(receipt_of(CASES["bool"]), folder / "r.json")
    source = "def forward(x, causal):\n    if causal:\n        return x\n"
    (folder / "model.py").write_text(source, encoding="utf-8")
