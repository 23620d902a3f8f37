"""Phases of steps under frameworks that own the loop; each test where its framework is installed.

No figure depends on the machine: what is asked is that every phase was seen in every step, and that
the phases are the whole of it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from attached import Events, watched

from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness import attach

pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def observed() -> Iterator[Events]:
    """The events of a session with every collector."""
    with watched() as events:
        yield events


def seen(events: Events, steps: int) -> Timeline:
    """The run, after checking what holds for each of them."""
    attach.finish(events.session)
    timeline = fold([list(events)])
    assert len(timeline.steps) == steps
    for step in timeline.steps:
        phases = (step.data_wait_s, step.forward_s, step.backward_s, step.optimizer_s)
        told = [phase for phase in phases if phase is not None]
        assert len(told) == len(phases)
        assert sum(told) + (step.spans_s or 0.0) <= step.wall_s
        assert min(told[1:]) > 0.0
    return timeline


def network() -> Any:
    layers = (torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    return torch.compile(torch.nn.Sequential(*layers), backend="eager")


def test_accelerate_with_gradient_accumulation(observed: Events) -> None:
    """Two micro-batches a step."""
    accelerate: Any = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.randn(32, 16), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    seen(observed, steps=4)


def test_lightning(observed: Events, tmp_path: Path) -> None:
    """Forward and backward run inside the optimizer's step, and are told apart from it; the
    trainer's checkpoint is one."""
    lightning: Any = pytest.importorskip("lightning")

    class Model(lightning.LightningModule):
        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model: Any = Model()
    model.net = network()
    data = torch.utils.data.TensorDataset(torch.randn(24, 16))
    trainer = lightning.Trainer(
        max_epochs=2,
        logger=False,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(tmp_path),
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8))
    timeline = seen(observed, steps=6)
    assert "checkpoint" in {span.name for span in timeline.spans}


def test_the_trainer_of_transformers(observed: Events, tmp_path: Path) -> None:
    """With `torch_compile=True`, and a checkpoint in the middle."""
    transformers: Any = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=32)
    rows = [
        {"input_ids": torch.randint(0, 50, (8,)), "labels": torch.randint(0, 50, (8,))}
        for _ in range(16)
    ]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_train_epochs=1,
        torch_compile=True,
        torch_compile_backend="eager",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_steps=2,
    )
    model = transformers.GPT2LMHeadModel(config)
    transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()
    timeline = seen(observed, steps=4)
    assert "checkpoint" in {span.name for span in timeline.spans}
