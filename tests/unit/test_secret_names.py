"""Names that hold secrets, and literals that are none."""

from __future__ import annotations

import pytest

from compilediag_harness.redaction.recognise import is_harmless_literal, is_secret_name


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "--api-key",
        "password",
        "cfg.dbPassword",
        "AWS_SECRET_ACCESS_KEY",
        "G['openai_key']",
        "accessToken",
        "--auth",
        "apiKey",
        "SESSION_COOKIE",
        "stateSecret",
    ],
)
def test_secret_names(name: str) -> None:
    """In every style of writing names."""
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "--tokenizer",
        "num_tokens",
        "pad_token",
        "eos_token_id",
        "sort_key",
        "kv_keys",
        "key_dim",
        "TOKENIZERS_PARALLELISM",
        "PWD",
        "monkey",
        "passes",
        "state_dict_keys",
        "L['x']",
        "",
    ],
)
def test_innocent_names(name: str) -> None:
    """Tokens of text, keys of attention and of maps, and words that only contain such a word."""
    assert not is_secret_name(name)


@pytest.mark.parametrize("value", ["1", "-3.5e-4", "True", "none", "off", " 12 ", "999999"])
def test_harmless_literals(value: str) -> None:
    """Small numbers and switches are no secrets, whatever they are called."""
    assert is_harmless_literal(value)


@pytest.mark.parametrize("value", ["", "12345678", "x", "1a", "truth"])
def test_other_values(value: str) -> None:
    """Long numbers and words may be secrets."""
    assert not is_harmless_literal(value)
