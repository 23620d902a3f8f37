"""Whether a run of characters is too random to be a word, a path, an identifier or a digest."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

AFTER_ESCAPE = r"(?<=[0-9;\[]m)|(?<=\\[abfnrtv0])|(?<=\\x[0-9a-fA-F]{2})"
"""A terminal's colour code, or a control character in `repr`, ends in a letter or digit and is no
part of what follows."""

RANDOM_RUN = re.compile(
    rf"(?:(?<![A-Za-z0-9+/_.\\-])|{AFTER_ESCAPE})(?!-|(?<=[\[;])[0-9]{{1,3}}[m;])[A-Za-z0-9+/_-]{{24,}}={{0,2}}"
)
"""Candidates for randomness. Nothing must follow: where one begins it is also consumed."""

LONG_RUN = re.compile(r"[A-Za-z0-9+/_-]{24}")
"""Without one there is no candidate, which is what most texts show at once."""

_PIECE = re.compile(r"[_-]")
_DIGIT_IN_WORD = re.compile(r"[0-9][a-z]")
_LOWER_RUN = re.compile(r"[a-z]+")
_MIN_CHANGES = 0.45


def looks_random(run: str) -> bool:
    """Whether upper case, lower case and digits all occur, change places as often as in random
    text, and carry at least 4 bits a character. Identifiers fall apart into short pieces at "_"
    and "-"."""
    run = run.rstrip("=")
    if "/" in run and len(run) < 40:
        return False
    if max(len(piece) for piece in _PIECE.split(run)) < 20:
        return False
    if not _DIGIT_IN_WORD.search(run) and _mean_length(_LOWER_RUN.findall(run)) >= 2.0:
        return False  # "CppMicroGemmWoQInt4Avx512": words, each with a capital
    return classes_of(run) == 3 and changes_in(run) >= _MIN_CHANGES and entropy(run) >= 4.0


def _mean_length(runs: list[str]) -> float:
    return sum(map(len, runs)) / max(len(runs), 1)


def classes_of(text: str) -> int:
    """How many of upper case, lower case and digits occur."""
    return len({_class_of(character) for character in text if character.isalnum()})


def changes_in(text: str) -> float:
    """The share of neighbours that are not of one class."""
    classes = [_class_of(character) for character in text if character.isalnum()]
    changes = sum(left != right for left, right in itertools.pairwise(classes))
    return changes / max(len(classes) - 1, 1)


def entropy(text: str) -> float:
    """Shannon's, in bits a character."""
    total = len(text)
    return -sum(n / total * math.log2(n / total) for n in Counter(text).values())


def _class_of(character: str) -> str:
    return "digit" if character.isdigit() else "upper" if character.isupper() else "lower"
