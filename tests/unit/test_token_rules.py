"""Tokens of known shapes: ours and gitleaks', each found wherever it stands, none slow."""

import gzip
import json
import random
import re
import string
from pathlib import Path
from typing import Any

import pytest

from compilediag_harness.redaction.recognise import PLACEHOLDER, find_secrets
from compilediag_harness.redaction.redactor import Redactor
from compilediag_harness.redaction.token_rules import RULES_FILE

LOWER_HEX = "0123456789abcdef"
ALNUM = string.ascii_letters + string.digits


def letters(alphabet: str, size: int, seed: int = 1) -> str:
    """Random characters, the same in every run."""
    return "".join(random.Random(seed).choices(alphabet, k=size))


TOKENS = {
    "Hugging Face, mixed": "hf_abcDEF0123456789abcdXYZ",
    "GitHub classic": "ghp_16charsABCDEFGHIJKLMNOPQRSTUVWXYZ01",
    "GitHub fine": "github_pat_11ABCDEFG0abcdefghij_0123456789",
    "OpenAI": "sk-proj-AbCd1234EfGh5678IjKl",
    "Anthropic": "sk-ant-api03-abcdefghijkl0123456",
    "AWS": "AKIAIOSFODNN7EXAMPLE",
    "Slack": "xoxb-1234567890-abcdefghij",
    "GitLab": "glpat-abcdefghij0123456789",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "Vault": "hvs." + letters(ALNUM, 24),
    "Vault batch": "hvb." + letters(ALNUM, 150),
    "SendGrid": f"SG.{letters(ALNUM, 22)}.{letters(ALNUM, 43)}",
    "Doppler": "dp.pt." + letters(ALNUM, 43),
    "Doppler service": "dp.st.prd." + letters(ALNUM, 40),
    "Terraform": f"{letters(ALNUM, 14)}.atlasv1.{letters(ALNUM, 67)}",
    "Twilio": "SK" + letters(LOWER_HEX, 32),
    "Mailchimp": letters(LOWER_HEX, 32) + "-us12",
    "New Relic": "NRAK-" + letters(string.ascii_uppercase + string.digits, 27),
    "New Relic licence": letters(LOWER_HEX, 36) + "NRAL",
    "Supabase": "sbp_" + letters(LOWER_HEX, 40),
    "RunPod": "rpa_" + letters(string.ascii_uppercase + string.digits, 40),
    "Hugging Face": "hf_" + letters(string.ascii_letters, 34),
    "Hugging Face, short": "hf_" + letters(ALNUM, 10),
    "Hugging Face, lower case": "hf_" + letters(string.ascii_lowercase, 20),
    "W&B, new": "wandb_v1_" + letters(ALNUM, 40),
    "Groq": "gsk_" + letters(ALNUM, 40),
    "Slack app": "xapp-1-" + letters(ALNUM, 20),
    "age": "AGE-SECRET-KEY-1" + letters("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "Shopify": "shpat_" + letters(LOWER_HEX, 32),
    "Postman": f"PMAK-{letters(LOWER_HEX, 24)}-{letters(LOWER_HEX, 34)}",
    "Grafana": f"glsa_{letters(ALNUM, 32)}_{letters(LOWER_HEX, 8)}",
    "Dynatrace": f"dt0c01.{letters(ALNUM, 24)}.{letters(ALNUM, 64)}",
    "Airtable, beside its name": f"pat{letters(ALNUM, 14)}.{letters(LOWER_HEX, 64)}",
}
PLACES = (
    "{}",
    "x == '{}'",
    '{{\\"airtable\\": \\"{}\\"}}',
    "loaded {}, next",
    "({})",
    "\x1b[1m{}\x1b[0m",
    '{{"a": "{}"}}',
    "--flag={}",
    r"b'\n{}\x00'",
    r"\x1b[31;1m{}!",
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", TOKENS)
def test_tokens_are_found(kind: str, place: str) -> None:
    """Also tokens with dots, of every length, and at the end of a sentence."""
    if "beside" in kind:
        place = f"airtable: {place}"
    redactor = Redactor()
    text = redactor.redact_text(place.format(TOKENS[kind]))
    assert TOKENS[kind][-12:] not in text
    if kind != "Terraform":  # which takes letters before it along
        assert PLACEHOLDER.sub("<redacted>", text) == place.format("<redacted>")
    assert sum(redactor.counts.values()) == 1


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://hooks.slack.com/services/{}", "T0000/B0000/" + letters(ALNUM, 24)),
        ("https://discord.com/api/webhooks/{}", "123456789/" + letters(ALNUM, 60)),
        ("ADOBE_SECRET_FASTLY = '{}'", letters(LOWER_HEX, 32)),
        ("my_datadog_thing: {}", letters(LOWER_HEX, 40)),
        ('"snyk_token": "{}"', "0a1b2c3d-0000-4000-8000-123456789abc"),
        ("wandb.login('{}')", letters(LOWER_HEX, 40)),
        ("export WANDB={}", letters(LOWER_HEX, 40)),
        ("wandb: using {} from the settings", letters(LOWER_HEX, 40)),
        ("machine api.wandb.ai login user password {}", letters(LOWER_HEX, 40)),
        ("RuntimeError: wrong password '{}'", "swordfish"),
        ('the password is "{}", which is refused', "two words"),
        ("Command '['mysql', '--password', '{}']' returned 1", "swordfish"),
        ("run with --api-key {} again", "swordfish"),
        ('{{\\"password\\": \\"{}\\"}}', "swordfish"),
    ],
)
def test_surroundings(text: str, secret: str) -> None:
    """What is secret by what stands around it; that stays."""
    whole = text.format(secret)
    found = Redactor().redact_text(whole)
    assert secret not in found
    before = whole.index(secret)
    assert found[:before] == whole[:before]


INNOCENT = (
    "tokenizer.pad_token == '[PAD]'",
    "num_tokens == 512",
    "L['self']._modules['token_embedding']._parameters['weight']",
    "len(L['keys']) == 3",
    "key == 'a'",
    "G['__import_torch_dot_utils_dot__pytree'].SUPPORTED_NODES",
    "TransformerEncoderLayer2WithAttentionAndNorm",
    "ConvolutionBackward0AccumulateGradSoftmaxBackward0",
    "s._modules['l']._forward_hooks[0].__closure__[0].cell_contents == False",
    "Unexpected token: x",
    "password is None",
    "token == 5",
    "attend(query, key=k, past_key_values=cache, token_type_ids=types, token=token)",
    "commit 0123456789abcdef0123456789abcdef01234567",
    "wandb: git commit 0123456789abcdef0123456789abcdef01234567",
    "cache key 0123456789abcdef0123456789abcdef01234567",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "md5 5d41402abc4b2a76b9719d911017c592",
    "0a1b2c3d-0000-4000-8000-123456789abc",
    "hf_transfer",
    "hf_LlamaForCausalLM",
    "hf_hub_download(repo_id='openai-community/gpt2', filename='model-00001-of-00002.safetensors')",
    "from_pretrained('meta-llama/Llama-3.1-8B-Instruct', torch_dtype=torch.bfloat16)",
    "models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f249a16976918f6564b8830bc894c89659/a.json",
    "tensor 'L['token_ids']' dtype mismatch. expected Long, actual Int",
    "check_tensor(L['x'], Tensor, DispatchKeySet(CPU, BackendSelect), torch.float32)",
    "___check_type_id(L['self'], 94561234567890), type=<class '__main__.TransformerEncoderLayer'>",
    "L['key_padding_mask'].size()[0] == 4",
    "tensor([[0.1234, -1.2345e-05], [3.0000, nan]], device='cuda:0', grad_fn=<AddmmBackward0>)",
    "torch.Size([2, 3, 224, 224])",
    "s0*s1 + 3*Max(1, u0) <= 4096",
    "torch.nn.modules.transformer.TransformerEncoderLayer.forward",
    "s.transformerencoderlayernorm",
    "self.tokenizer = AutoTokenizer.from_pretrained(name)",
    "unexpected keyword argument 'token_type_ids'",
    "KeyError: 'token_embedding.weight'",
    "SyntaxError: invalid token '<|endoftext|>'",
    "key 'encoder.layer.0.attention.self.key.weight' is missing",
    "secrets.token_hex(16)",
    "password: Optional[str] = None",
    "IMG_20231120_144500_HDR.png",
    "registry.example.org/team/train@sha256:" + "0f" * 32,
    "image-a1b2c3d4e5f60718.base64.png",
    "/usr/lib/python3.12/site-packages/torch/_inductor/compile_worker/__main__.py",
    "/home/me/.cache/torch/kernels/PTX_compute_90/",
    "/tmp/torchinductor_me/uv/cuvw5o2ixyjzqr7rmzkzh4vf4e2frndm7m4u6xiu6dtvlyxpsyqu.py",
    "triton_poi_fused_add_mul_relu_0",
    "def call(args): arg0_1, arg1_1 = args; buf0 = empty_strided_cpu((3, ), (1, ), torch.float32)",
    "fx graph cache key: fz7q3l5xk4vn2b6m9c8w0s1d",
    "https://github.com/pytorch/pytorch/issues/12345?q=is%3Aopen",
    "ssh://git@github.com/user/repo.git",
    "python train.py --lr 3e-4 --tokenizer gpt2 --pad-token <pad> --max-tokens 512 --key-dim 64",
    "usage: train.py [--token TOKEN] [--api-key KEY]",
    "task-1 mask-0 disk-usage risk-free",
    "sumo twitter_sentiment: train, linear: out_features",
    "aws-neuronx-runtime-discovery",
    "2026-11-22T17:52:00.123456Z",
    "tokens = embed(torch.randn(4, 3))",
    "token = path_splits[0]",
    "token = torch.float32",
    "class CppMicroGemmWoQInt4Avx512(CppMicroGemmFP32Vec):",
    "V1122 18:05:50.514000 16664 torch/_dynamo/guards.py:5396] [0/1] [__recompiles]",
)


@pytest.mark.parametrize("text", INNOCENT)
def test_innocent_text_stays(text: str) -> None:
    """Guards, shapes, hashes, commits, UUIDs, paths, images, modules and tensors."""
    assert Redactor().redact_text(text) == text


def test_recorded_text_of_torch_stays() -> None:
    """Traces, logs and journals of real runs hold no secrets, and none is seen in them."""
    data = Path(__file__).parents[1] / "data"
    paths = [*data.rglob("*.gz"), *data.glob("golden_*.json"), *data.rglob("*.jsonl")]
    assert len(paths) > 10
    for path in paths:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "replace")
        assert find_secrets(text) == (), path.name


def test_gitleaks_is_named() -> None:
    """The data says where it is from, and its licence lies beside it."""
    document = json.loads(Path(RULES_FILE).read_text("utf-8"))
    assert document["source"].startswith("https://github.com/gitleaks/gitleaks/")
    assert "MIT" in document["license"]
    assert "Zachary Rice" in Path(RULES_FILE).with_name("LICENSE.gitleaks").read_text("utf-8")


def rules() -> list[dict[str, Any]]:
    return json.loads(Path(RULES_FILE).read_text("utf-8"))["rules"]


def test_every_rule_is_bounded() -> None:
    """No repetition is without an end, so the time for one place in a text has a bound."""
    assert len(rules()) > 150
    for rule in rules():
        outside = re.sub(r"\\.|\[(?:\\.|[^\]])+\]", "x", rule["pattern"])
        assert not re.search(r"[^({|][*+]", outside), rule["id"]
        assert not re.search(r"\{\d+,\}", outside), rule["id"]
        assert rule["keywords"], rule["id"]


@pytest.mark.timeout(60)
def test_keywords_without_end_are_no_trouble() -> None:
    """Each keyword, repeated: an expression that is not linear would take minutes."""
    for rule in rules():
        for word in rule["keywords"]:
            for text in (word * (8_000 // len(word)), f"{word} = '" * 800):
                Redactor().redact_text(text)
