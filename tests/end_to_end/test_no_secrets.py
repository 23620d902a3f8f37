"""Secrets of every kind, planted in a real run with everything switched on, in no file of it."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import compilediag

from compilediag.runs.tools.tlparse import find_tlparse

pytestmark = pytest.mark.usefixtures("forked")

HEX_KEY = "b7c1d2e3f4a5968778695a4b3c2d1e0f9a8b7c6d"
SECRETS = {
    "environment": "canaryenvironmentvalue",
    "environment, a URL": "canary-db-9",
    "environment, set later": "canarylatervalue",
    "environment, W&B": "c7c1d2e3f4a5968778695a4b3c2d1e0f9a8b7c6e",
    "option": "canary-option",
    "short option": "canaryshort",
    "assignment": "canaryassigned",
    "address": "canary-address-token",
    "guard by name": "canaryguardone",
    "guard by name, changed": "canaryguardtwo",
    "dictionary": "canarydictionary",
    "tracker": "canarytracker",
    "tracker, below": "canarybelow",
    "source line": "canarycomment",
    "exception": "canaryexception",
    "W&B": HEX_KEY,
    "Hugging Face": "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",
    "Hugging Face, short": "hf_canary0123",
    "Vault": "hvs.CAESIcanary0123456789canary",
    "SendGrid": "SG.canary0123456789abcdef.canary0123456789abcdefghijkl",
    "Doppler": "dp.pt.canary0123456789canary0123456789canary012",
    "Terraform": "canary01234567.atlasv1.canary0123456789canary0123456789canary0123456789canary012",
    "Slack": "T0CANARY0/B0CANARY0/canary0123456789canary01",
    "RunPod": "rpa_CANARY0123456789CANARY0123456789CANARY01",
    "span": "glpat-canary0123456789canary",
}
"""Kind to what must be in no file."""


PROGRAM = """
import os, sys
import torch
import compilediag as cd

torch._dynamo.config.recompile_limit = 64

class Config:
    pass

config = Config()
settings = {"api_key": "canarydictionary", "name": "harmless-dictionary"}

@torch.compile(backend="eager")
def model(x, label, settings):
    if config.password == "harmless" or settings["api_key"] == label:
        return x - 1
    if config.width == 1:  # password = "canarycomment"
        return x
    torch._dynamo.graph_break()
    return x + 1

tracker = cd.tracker(
    config={
        "api_key": "canarytracker",
        "task": "harmless-task",
        "credentials": {"pin": "canarybelow", "user": "canarybelow"},
    }
)
tracker.start_run()
config.password = "canaryguardone"
config.width = 2
labels = sys.stdin.read().split("|")
for step, label in enumerate(labels):
    if step == 1:
        config.password = "canaryguardtwo"
    if step == 2:
        config.width = 3
    with cd.span("load harmless-span " + labels[-1]):
        model(torch.ones(3), label, settings)
    tracker.record_step(step, {"loss": 1.0})
tracker.finish_run()
os.environ["LATE_API_KEY"] = "canarylatervalue"
raise RuntimeError(
    f"harmless-exception: password 'canaryexception' and {os.environ['SERVICE_TOKEN']} "
    f"and {os.environ['DATABASE_URL']} and {os.environ['WANDB_API_KEY']} and canarylatervalue "
    f"and {sys.argv}"
)
"""


def run(folder: Path) -> Path:
    """A run of the program with everything that writes files switched on."""
    (folder / "program.py").write_text(PROGRAM)
    environment = {
        **os.environ,
        "SERVICE_TOKEN": SECRETS["environment"],
        "DATABASE_URL": f"postgres://me:{SECRETS['environment, a URL']}@example.org/db",
        "WANDB_API_KEY": SECRETS["environment, W&B"],
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
    }
    environment.pop("TORCH_TRACE", None)
    labels = [
        "harmless-first",
        SECRETS["Hugging Face"],
        SECRETS["Hugging Face, short"],
        f"wandb login {SECRETS['W&B']}",
        *(SECRETS[kind] for kind in ("Vault", "SendGrid", "Doppler", "Terraform", "RunPod")),
        f"https://hooks.slack.com/services/{SECRETS['Slack']}",
        SECRETS["span"],
    ]
    words = ["run", "--json", "--no-live", "--output", "out", "--trace", "--depyf"]
    words += ["--tlparse"] if find_tlparse() else []
    words += ["program.py", "--password", SECRETS["option"], "-p", SECRETS["short option"]]
    words += [f"api_key={SECRETS['assignment']}", f"https://h/x?token={SECRETS['address']}"]
    done = subprocess.run(
        [sys.executable, "-m", "compilediag", *words],
        cwd=folder,
        env=environment,
        input="|".join(labels),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    for number in range(1, 9):
        script = f"out/repro_{number}.py"
        compilediag("repro", str(number), "out", "--output", script, cwd=folder)
    return folder / "out"


def contents(folder: Path) -> Iterator[tuple[str, str]]:
    """The text of each file and its name, which is text too; compressed ones as what they hold."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        raw = path.read_bytes() if path.is_file() else b""
        if name.endswith(".gz"):
            raw = gzip.decompress(raw)
        yield name, f"{name}\n{raw.decode('utf-8', 'replace')}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every file of one run."""
    return dict(contents(run(tmp_path_factory.mktemp("run"))))


def test_everything_was_written(files: dict[str, str]) -> None:
    """What stands beside the secrets did reach the files: they were not just left out."""
    journal = "".join(text for name, text in files.items() if name.startswith("journal-"))
    for word in ("harmless-task", "harmless-span", "harmless-exception"):
        assert word in journal, word
    trace = "".join(text for name, text in files.items() if "torch_trace" in name)
    assert "harmless-first" in trace
    assert "harmless-first" in files["torch_logs.txt"]
    assert any("repro_" in name for name in files)
    assert any("/depyf/" in name for name in files)
    assert not find_tlparse() or any("/tlparse/" in name for name in files)


def test_no_file_holds_a_part_of_one(files: dict[str, str]) -> None:
    """Every secret has the word canary or a row of hex digits in it."""
    for name, text in files.items():
        assert "canary" not in text.lower().replace("compilediag", ""), name
        assert HEX_KEY[:12] not in text, name
        assert SECRETS["environment, W&B"][:12] not in text, name


def test_the_receipt_counts_them(files: dict[str, str]) -> None:
    """And the diagnosis still shows that the values differed."""
    receipt = json.loads(files["receipt.json"].partition("\n")[2])
    redactions = receipt["header"]["run"]["redactions"]
    assert redactions["count"] == files["receipt.json"].count("<redacted:") > 10
    assert {"hugging-face", "known_value", "secret_name"} <= set(redactions["rules"])
    assert receipt["completeness"]["sources"]["agree"] is True
    (password,) = [item for item in receipt["findings"] if item["variable"] == "config.password"]
    expected, actual = password["evidence"]["expected"], password["evidence"]["actual"]
    assert expected.startswith("'<redacted:secret_name")
    assert actual.startswith("'<redacted:secret_name")
    assert expected != actual
    config = receipt["tracked"][0]["config"]
    assert config["task"] == "harmless-task"
    assert config["api_key"].startswith("<redacted:")


TRACED = """
import subprocess, sys
import torch
code = '''
import torch

@torch.compile(backend="eager")
def model(x, label):
    return x + (1 if label == "harmless-label" else 2)

model(torch.ones(2), "hf_canary0123")
model(torch.ones(2), "hf_canary0124")
'''
if "isolated" in sys.argv:
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
exec(code)
"""


def traced(folder: Path, *words: str, **variables: str) -> None:
    """A run of a small program, alone or with a process that nothing can be attached to."""
    (folder / "program.py").write_text(TRACED)
    base = {name: value for name, value in os.environ.items() if name != "TORCH_TRACE"}
    command = [sys.executable, "-m", "compilediag", "run", "--no-live", "--output", "out"]
    command += ["--trace", "program.py", *words]
    environ = {**base, **variables}
    subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=True)


def test_a_trace_of_the_users_stays_as_torch_writes_it(tmp_path: Path) -> None:
    """It is theirs, and not in the run's folder."""
    traced(tmp_path, TORCH_TRACE=str(tmp_path / "mine"))
    mine = "".join(text for _, text in contents(tmp_path / "mine"))
    assert "hf_canary0123" in mine
    assert "<redacted" not in mine
    assert "canary" not in "".join(text for _, text in contents(tmp_path / "out"))


def test_the_trace_of_a_process_that_was_not_attached_is_cleaned(tmp_path: Path) -> None:
    """`python -I` keeps us out, and torch writes its trace all the same."""
    traced(tmp_path, "isolated")
    traces = [text for name, text in contents(tmp_path / "out") if name.endswith(".log")]
    assert len(traces) == 2
    assert all("harmless-label" in text or "<redacted:" in text for text in traces)
    assert "canary" not in "".join(text for _, text in contents(tmp_path / "out"))
