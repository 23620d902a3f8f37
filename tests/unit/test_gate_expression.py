"""Limits as they are typed: what parses, what each means, and what is wrong with the others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag.compare.gate.limits import SECONDS, Limit, parse_limits
from compilediag.errors import UsageError


@pytest.mark.parametrize("name", SECONDS)
def test_a_time_has_only_a_ceiling(name: str) -> None:
    """No two runs take the same, and no run is at fault because it was fast."""
    assert [str(limit) for limit in parse_limits(f"{name}>7,{name}>=8")] == [
        f"{name}>7",
        f"{name}>=8",
    ]
    for sign in ("<", "<=", "==", "!="):
        with pytest.raises(UsageError, match=rf"can only have a ceiling: write '{name}>7'"):
            parse_limits(f"{name}{sign}7")


@pytest.mark.parametrize(
    ("sign", "below", "at", "above"),
    [
        (">", False, False, True),
        (">=", False, True, True),
        ("<", True, False, False),
        ("<=", True, True, False),
        ("==", False, True, False),
        ("!=", True, False, True),
    ],
)
def test_a_limit_says_what_must_not_be(sign: str, below: bool, at: bool, above: bool) -> None:
    """The gate fails where the comparison holds."""
    limit = Limit("frames", sign, 5)
    assert [limit.is_broken_by(count) for count in (4, 5, 6)] == [below, at, above]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the limits are empty"),
        (" , ", "the limits are empty"),
        ("recompiles>0,,frames>1", "limit 2 of 3, '', does not parse"),
        ("recompiles", "does not parse"),
        ("recompiles=0", "does not parse"),
        ("recompiles>1.5", "a whole number of at most nine digits"),
        ("recompiles>99999999999", "a whole number of at most nine digits"),
        ("recompiles > 0; frames > 1", "does not parse"),
        ("recompiles>0 frames>1", "does not parse"),
        ("0<recompiles", "does not parse"),
        ("recompiles>٣", "does not parse"),
        ("recompiles>-1", "a count is never below 0"),
        ("recompiles>=0", "would always fail"),
        ("recompiles<0", "would never fail"),
        ("frames>0,recompile>0", "limit 2 of 2, 'recompile>0',"),
        ("recompile>0", "did you mean 'recompiles'"),
        ("Graph-Breaks>0", "does not parse"),
        ("nonsense>0", "there is no count 'nonsense' (names: frames, compiles, recompiles"),
        ("CD099>0", "there is no rule CD099"),
        ("wall_s>3", "there is no count 'wall_s'"),
    ],
)
def test_the_message_names_what_is_wrong(text: str, message: str) -> None:
    """The message names the part, what is wrong with it, and what could be meant."""
    with pytest.raises(UsageError) as caught:
        parse_limits(text)
    assert message in str(caught.value)


@settings(max_examples=40, deadline=None)
@given(st.text("recompilsCD_013><=!,. \n\u0663", max_size=30) | st.text(max_size=20))
def test_no_text_is_a_fault_of_ours(text: str) -> None:
    """Whatever is typed parses or is a UsageError; what parses can be written again."""
    try:
        limits = parse_limits(text)
    except UsageError:
        return
    assert parse_limits(",".join(map(str, limits))) == limits
