"""The public surface of `import compilediag as cd`: what it holds, and what it costs."""

from pathlib import Path

import pytest

import compilediag

NAMES = [
    "Ablation",
    "AblationInvalid",
    "Cadence",
    "FixedShape",
    "Pipeline",
    "Tracker",
    "__version__",
    "ablation",
    "cadence",
    "drive",
    "pipeline",
    "read_ablation",
    "span",
    "step",
    "tracker",
    "watch",
]


def test_the_public_names() -> None:
    """A name comes or goes on purpose: here, in docs/reference/python_api.md, in the CHANGELOG."""
    assert compilediag.__all__ == NAMES
    for name in NAMES:
        assert getattr(compilediag, name) is not None
        assert name in dir(compilediag)


def test_public_names_are_what_they_say() -> None:
    """No submodule hides one of them, whatever was imported before."""
    import compilediag.runs.watch as module

    assert compilediag.watch is module.watch
    assert callable(compilediag.step)
    assert isinstance(compilediag.span("x"), compilediag.span)
    assert isinstance(compilediag.cadence("x", 2), compilediag.Cadence)


def test_no_module_has_a_public_name() -> None:
    """Importing a submodule binds its name in the package, and would hide what users call."""
    folder = Path(compilediag.__file__).parent
    modules = {path.stem for path in folder.iterdir()}
    assert "cli" in modules
    assert not modules & set(NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of any module, and with the name in it."""
    with pytest.raises(AttributeError, match="'compilediag' has no attribute 'fixed_shape'"):
        compilediag.fixed_shape  # noqa: B018
