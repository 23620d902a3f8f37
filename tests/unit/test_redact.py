"""Secrets: recognised ones never stay, innocent text always does, and no input is slow."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag.receipt.sanitize import sanitize
from compilediag_harness.redaction import redactor as redactor_module
from compilediag_harness.redaction.recognise import PLACEHOLDER, is_harmless_literal, is_secret_name
from compilediag_harness.redaction.redactor import Redactor, list_secret_values
from compilediag_harness.wire import clip

REDACTED = "<redacted>"
"""Any placeholder, in what `unnumbered` gives."""


def unnumbered(value: Any) -> Any:
    """Texts, at any depth, in which every placeholder is the same."""
    if isinstance(value, str):
        return PLACEHOLDER.sub(REDACTED, value)
    if isinstance(value, dict):
        items: dict[Any, Any] = value
        return {unnumbered(key): unnumbered(item) for key, item in items.items()}
    if isinstance(value, (list, tuple)):
        return [unnumbered(item) for item in value]
    return value


def redact_text(text: str, known: Iterable[str] = ()) -> tuple[str, Counter[str]]:
    """A text without its secrets, and how many were replaced by which rule."""
    redactor = Redactor(known)
    return unnumbered(redactor.redact_text(text)), redactor.counts


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("WANDB_API_KEY=" + "0123456789abcdef" * 2 + "01234567", "WANDB_API_KEY=<redacted>"),
        ("wandb login " + "0123456789abcdef" * 2 + "01234567", "wandb login <redacted>"),
        ("Authorization: Bearer abcdef123456789", "Authorization: Bearer <redacted>"),
        ("https://user:hunter22@example.org/x", "https://<redacted>@example.org/x"),
        ("postgres://admin:s3cr3t@db:5432/x", "postgres://<redacted>@db:5432/x"),
        ("https://x.org/core?sig=abc%2Fdef&x=1", "https://x.org/core?sig=<redacted>&x=1"),
        ("L['cfg'].api_key == 'hunter2'", "L['cfg'].api_key == '<redacted>'"),
        ("G['PASSWORD'] == 'xyzzy'", "G['PASSWORD'] == '<redacted>'"),
        ("{'password': 'p'}", "{'password': '<redacted>'}"),
        ('{"api_key": "two words"}', '{"api_key": "<redacted>"}'),
        ("token = b'abc'", "token = b'<redacted>'"),
        ('connect(x, password="hunter2", key=k)', 'connect(x, password="<redacted>", key=k)'),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc+/=\n-----END RSA PRIVATE KEY-----",
            "<redacted>-----END RSA PRIVATE KEY-----",
        ),
    ],
)
def test_names_and_surroundings(before: str, after: str) -> None:
    """What is secret only by its name or surroundings is replaced; those stay."""
    assert redact_text(before)[0] == after


def test_argv() -> None:
    """Values of secret options go, in both forms; flags without a value take nothing with them."""
    redactor = Redactor()
    arguments = [
        *("train.py", "--token", "abc123", "--api-key=zzz", "auth.secret=5x"),
        *("--lr", "3e-4", "--tokenizer", "gpt2", "--pad-token", "<pad>", "--key", "--verbose"),
        *("--num-keys", "4"),
    ]
    assert unnumbered(redactor.redact_argv(arguments)) == [
        *("train.py", "--token", REDACTED, f"--api-key={REDACTED}", f"auth.secret={REDACTED}"),
        *("--lr", "3e-4", "--tokenizer", "gpt2", "--pad-token", "<pad>", "--key", "--verbose"),
        *("--num-keys", "4"),
    ]
    assert sum(redactor.counts.values()) == 3


def test_environment() -> None:
    """By name or by shape; numbers and switches stay."""
    redactor = Redactor()
    variables = {"HF_TOKEN": "x", "TOKENIZERS_PARALLELISM": "false", "KEY": "1"}
    found = redactor.redact_environment({**variables, "MY_URL": "https://a:b@c"})
    assert unnumbered(found) == {
        "HF_TOKEN": REDACTED,
        "TOKENIZERS_PARALLELISM": "false",
        "MY_URL": f"https://{REDACTED}@c",
        "KEY": "1",
    }
    assert redactor.counts == {"secret_name": 1, "url_userinfo": 1}


def test_known_values_are_replaced_everywhere() -> None:
    """A password that was named once is found again in text that does not name it."""
    known = list_secret_values(["--password", "correct horse"], {"DB_PASSWORD": "battery9"})
    text, counts = redact_text("could not log in with correct horse or battery9", known)
    assert text == f"could not log in with {REDACTED} or {REDACTED}"
    assert counts == {"known_value": 2}


def test_short_numbers_and_paths_are_not_known_values() -> None:
    """They stand in too many innocent texts."""
    assert list_secret_values(["--key", "512", "--token", "abc"], {"SSH_AUTH_SOCK": "/tmp/s"}) == ()


def test_values_of_a_secret_variable() -> None:
    """Values of a guarded variable called like a secret go, wherever the finding shows them."""
    found, _ = sanitize(
        {
            "variable": "cfg.api_key",
            "guard": "L['cfg'].api_key == 'first one'",
            "title": "cfg.api_key 'first one' → 'second'",
            "evidence": {"expected": "'first one'", "actual": "opaque123", "compile_ids": ["0/1"]},
            "file": "model.py",
        },
        Redactor(),
    )
    assert unnumbered(found) == {
        "variable": "cfg.api_key",
        "guard": f"L['cfg'].api_key == '{REDACTED}'",
        "title": f"cfg.api_key '{REDACTED}' → '{REDACTED}'",
        "evidence": {"expected": f"'{REDACTED}'", "actual": REDACTED, "compile_ids": ["0/1"]},
        "file": "model.py",
    }


def test_a_tensor_with_the_name_of_a_secret() -> None:
    """The source that torch quotes in a guard is a name; what it is compared with goes."""
    for source in ("L['key']", "L['kwargs']['api_key']", "L['self'].cache.keys[0]"):
        text = f"tensor '{source}' size mismatch at index 0. expected 4, actual 5"
        assert Redactor().redact_field("guard", text, secret=True) == text
    guard = "tensor 'L['key']' is 'hunter2'"
    assert "hunter2" not in Redactor().redact_field("guard", guard, secret=True)


def test_values_seen_of_a_secret_variable() -> None:
    """A forecast lists values by variable: those of a secret one go, and still differ."""
    seen = {"cfg.password": ["'hunter2'", "'swordfish'", "3"], "mode": ["'train'", "'eval'"]}
    found, _ = sanitize({"evidence": {"values_seen": seen}}, Redactor())
    shown = found["evidence"]["values_seen"]
    assert unnumbered(shown)["cfg.password"] == [f"'{REDACTED}'", f"'{REDACTED}'", "3"]
    assert shown["cfg.password"][0] != shown["cfg.password"][1]
    assert shown["mode"] == seen["mode"]


def test_different_secrets_stay_different() -> None:
    """The same value is the same placeholder everywhere, another value is another one."""
    redactor = Redactor(["battery9"])
    first = redactor.redact_text("L['password'] == 'hunter2one' and battery9")
    second = redactor.redact_text("password: 'hunter2two'")
    again = (
        redactor.redact_named("api_key", "hunter2one"),
        redactor.redact_argv(["--token", "battery9"])[1],
    )
    placeholders = [match[0] for match in PLACEHOLDER.finditer(first + second)]
    assert len(set(placeholders)) == 3
    assert again == (placeholders[0], placeholders[1])


def test_what_was_named_once_is_known() -> None:
    """Also where nothing beside it says what it is; a word is not."""
    redactor = Redactor()
    redactor.redact_text("password = 'xyzzy-1234'")
    redactor.redact_text("password = 'transformer'")
    assert (
        unnumbered(redactor.redact_text("got xyzzy-1234, a transformer"))
        == f"got {REDACTED}, a transformer"
    )


def test_a_known_secret_that_was_cut_goes() -> None:
    """The beginning of one at the end of a text that was bounded."""
    redactor = Redactor(["correct horse battery"])
    cut = clip("logged in with correct horse battery", 25)
    assert (
        unnumbered(redactor.redact_text(cut)) == f"logged in with {REDACTED}… [11 more characters]"
    )


def test_numbers_of_placeholders_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with a new token in each step fills no memory."""
    monkeypatch.setattr(redactor_module, "MAX_NUMBERED", 2)
    redactor = Redactor()
    texts = [redactor.redact_named("password", f"secret{number}") for number in range(4)]
    assert texts[2:] == ["<redacted:secret_name>", "<redacted:secret_name>"]
    assert redactor.redact_text(texts[3]) == texts[3]


def test_spellings_of_a_known_value() -> None:
    """In quotes of Python and JSON, and in a URL."""
    value = 'pa"s\\s/wörd'
    redactor = Redactor([value, "\udcff\ud800 lone"])
    for text in (value, repr(value), json.dumps(value), f"https://h/?q={quote(value, safe='')}"):
        assert "pa" not in redactor.redact_text(text)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["mysql", "-p", "shortpw"], False),
        (["train.py", "-p", "8080"], True),
        (["train.py", "-p", "bf16"], True),
        (["pytest", "-p", "no:cacheprovider"], True),
        (["/venv/bin/pytest", "-p", "xdist"], True),
    ],
)
def test_the_short_option_of_a_password(arguments: list[str], kept: bool) -> None:
    """`-p` is one of a database's client; with a number, a precision or pytest it is none."""
    assert (Redactor().redact_argv(arguments)[-1] == arguments[-1]) is kept
    assert bool(list_secret_values(arguments, {})) is not kept


@settings(deadline=None)  # a check never depends on how fast the machine was
@given(st.text(max_size=200), st.sampled_from(["hf_abcDEF0123456789abcd", "AKIAIOSFODNN7EXAMPLE"]))
def test_twice_is_once(noise: str, secret: str) -> None:
    """What is redacted is not redacted again."""
    text = Redactor().redact_text(f"{noise} {secret} {noise}")
    assert secret not in text
    assert Redactor().redact_text(text) == text


HOSTILE = {
    "one letter": "a",
    "prefixes": "hf_",
    "dashes": "sk-",
    "jwt starts": "eyJ",
    "jwt halves": "eyJaaaaaaaaaa.",
    "names": "api_key=",
    "open quotes": "api_key='",
    "schemes": "://",
    "key words": "key ",
    "bearers": "bearer ",
    "begin lines": "-----BEGIN PRIVATE KEY-----",
    "almost random": "A1b",
    "userinfo": "a@",
    "parameters": "?token=",
    "spaces": " ",
    "brackets": "[a-",
    "pairs": "auth:a:a:",
    "colours": "0meyJ",
    "escapes": r"\nA1b",
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_ends(kind: str) -> None:
    """A hundred kilobytes of what makes a pattern backtrack: a quadratic one takes minutes."""
    piece = HOSTILE[kind]
    text = piece * (100_000 // len(piece))
    assert Redactor().redact_field("title", text, secret=True)


@pytest.mark.parametrize(
    ("names", "secret"),
    [
        (("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "SESSION_COOKIE"), True),
        (("--api-key", "--auth", "password", "cfg.dbPassword", "G['openai_key']"), True),
        (("accessToken", "apiKey", "stateSecret"), True),
        (("--tokenizer", "TOKENIZERS_PARALLELISM", "num_tokens", "pad_token"), False),
        (("eos_token_id", "sort_key", "kv_keys", "key_dim", "state_dict_keys"), False),
        (
            ("past_key_values", "layers.keys", "key_states", "self.key_proj", "key_padding_mask"),
            False,
        ),
        (("PWD", "monkey", "passes", "L['x']", ""), False),
    ],
)
def test_secret_names(names: tuple[str, ...], secret: bool) -> None:
    """In every style of writing names; not tokens of text, keys of attention and of maps, and words
    that only contain such a word."""
    assert [name for name in names if is_secret_name(name) is not secret] == []


def test_harmless_literals() -> None:
    """Small numbers and switches are no secrets, whatever they are called; long numbers and words
    may be."""
    assert all(map(is_harmless_literal, ("1", "-3.5e-4", "True", "none", "off", " 12 ", "999999")))
    assert not any(map(is_harmless_literal, ("", "12345678", "x", "1a", "truth")))
