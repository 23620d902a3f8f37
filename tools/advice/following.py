"""Recipes followed to the letter: what a sentence says is edited into a program by machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from compilediag.receipt.schema.compiles import FindingRecord

_PLACE = re.compile(r"\.py:(\d+)")


class NotMechanical(Exception):
    """The sentence cannot be followed by machine."""


def follow(text: str, finding: FindingRecord) -> tuple[str, dict[str, str]]:
    """Follow the recipe of a finding in the text of its program.

    Returns:
        The new text, and variables of the environment.
    """
    said = finding.fix.summary
    follower = _FOLLOWERS.get(finding.fix.recipe or "")
    if follower is None:
        raise NotMechanical(f"{finding.fix.recipe}: {said}")
    return follower(text, said)


def _follow_setting(text: str, said: str) -> tuple[str, dict[str, str]]:
    match = re.search(r'export (\w+)="?([^",]*(?:,[^ "]+)*)"?(?:$|, and)', said)
    if match is None:
        raise NotMechanical(said)
    return text, {match[1]: match[2]}


def _follow_marks(text: str, said: str) -> tuple[str, dict[str, str]]:
    lines = text.splitlines()
    places = [int(number) for number in _PLACE.findall(said)]
    marks = re.findall(
        r"torch\._dynamo\.maybe_mark_dynamic\((.*?), (\d+)\)(?=,| before| and| for)", said
    )
    if not places or not marks:
        raise NotMechanical(said)
    assigned = (
        re.findall(r"`([^`]+)`(?: to a variable (\w+))?", said) if said.startswith("assign") else []
    )
    for place in sorted(set(places), reverse=True):
        line = lines[place - 1]
        indent = line[: len(line) - len(line.lstrip())]
        before: list[str] = []
        for number, (expression, variable) in enumerate(assigned):
            name = variable or f"t{number}_"
            before.append(f"{name} = {expression}")
            line = _wrap(line, expression, "", name)
            if "for each variable t" in said:
                before += [f"torch._dynamo.maybe_mark_dynamic({name}, {dim})" for _, dim in marks]
        if "for each variable t" not in said:
            before += [f"torch._dynamo.maybe_mark_dynamic({name}, {dim})" for name, dim in marks]
        if line.lstrip().startswith("return [") and before:
            raise NotMechanical("in a comprehension")
        lines[place - 1 : place] = [*(indent + added for added in before), line]
    return "\n".join(lines) + "\n", {}


def _follow_argument(text: str, said: str) -> tuple[str, dict[str, str]]:
    match = re.match(
        r"pass (torch\.tensor\((.*), dtype=torch\.float32\)) for `[^`]+` at (.*)",
        said,
    )
    if match is None:
        raise NotMechanical(said)
    lines = text.splitlines()
    for place in _PLACE.findall(match[3]):
        line = lines[int(place) - 1]
        # The last argument of the innermost call: generated programs pass it there.
        at = line.rfind(match[2])
        lines[int(place) - 1] = line[:at] + match[1] + line[at + len(match[2]) :]
    return "\n".join(lines) + "\n", {}


def _follow_first_call(text: str, said: str) -> tuple[str, dict[str, str]]:
    variables = _follow_setting(text, said)[1] if "export" in said else {}
    if "force_eager" not in said:
        return text, variables
    places = [int(number) for number in _PLACE.findall(said)]
    lines = text.splitlines()
    line = lines[places[0] - 1]
    if "set_stance" in line:  # another finding asked for it
        return text, variables
    indent = line[: len(line) - len(line.lstrip())]
    lines[places[0] - 1 : places[0]] = [
        f"{indent}with torch.compiler.set_stance('default' if results else 'force_eager'):",
        f"    {line}",
    ]
    return "\n".join(lines) + "\n", variables


def _follow_copy(text: str, said: str) -> tuple[str, dict[str, str]]:
    match = re.match(r"pass \((.*)\)(\.\w+\(.*\)) for `", said)
    if match is None:
        raise NotMechanical(said)
    lines = text.splitlines()
    for place in {int(number) for number in _PLACE.findall(said)}:
        lines[place - 1] = _wrap(lines[place - 1], match[1], match[2])
    return "\n".join(lines) + "\n", {}


def _wrap(line: str, expression: str, method: str, variable: str = "") -> str:
    wanted = ast.unparse(ast.parse(expression, mode="eval"))
    for start in range(len(line)):
        for end in range(len(line), start, -1):
            part = line[start:end]
            try:
                same = ast.unparse(ast.parse(part.strip(), mode="eval")) == wanted
            except SyntaxError:
                continue
            called = part.startswith("(") and re.search(r"[\w)\]]$", line[:start])
            if same and not called:
                made = variable or f"({part.strip()}){method}"
                return f"{line[:start]}{made}{line[end:]}"
    raise NotMechanical(line)


def _follow_hook(text: str, said: str) -> tuple[str, dict[str, str]]:
    name = re.search(r"disable on `(?:.*\.)?(\w+)`", said)
    if name is None:
        raise NotMechanical(said)
    return text.replace(f"_hook({name[1]})", f"_hook(torch.compiler.disable({name[1]}))"), {}


def _follow_rate(text: str, said: str) -> tuple[str, dict[str, str]]:
    return re.sub(r"lr=([\d.]+)", r"lr=torch.tensor(\1)", text), {}


def _follow_dynamic(text: str, said: str) -> tuple[str, dict[str, str]]:
    return re.sub(r"compile\((.*backend=.\w+.)\)", r"compile(\1, dynamic=True)", text), {}


def _follow_logging(text: str, said: str) -> tuple[str, dict[str, str]]:
    line = re.search(r"`?(torch\._dynamo\.config\.\w+ = \{\w+\})`?", said)
    if line is None:
        raise NotMechanical(said)
    return text.replace(
        "\n\ntorch.manual_seed", f"\n\nimport torch._dynamo\n{line[1]}\ntorch.manual_seed", 1
    ), {}


_FOLLOWERS: dict[str, Callable[[str, str], tuple[str, dict[str, str]]]] = {
    "dynamic_source": _follow_setting,
    "captured_shapes": _follow_setting,
    "dynamic_growth": _follow_first_call,
    "mark_dynamic": _follow_marks,
    "tensor_argument": _follow_argument,
    "first_call_eager": _follow_first_call,
    "one_form": _follow_copy,
    "disabled_hook": _follow_hook,
    "lr_tensor": _follow_rate,
    "dynamic_true": _follow_dynamic,
    "reordered_output": _follow_logging,
}
