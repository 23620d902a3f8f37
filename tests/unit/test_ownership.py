"""Whose code a file is, for every form of a path that torch and Python print."""

import pytest

from compilediag.timeline.ownership import classify_ownership

ROOTS = ("/home/ann/project", "/home/ann/project/scripts")


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        # Absolute paths: by the package folder, never by being below the user's folder.
        ("/home/ann/project/model.py", "user"),
        ("/home/ann/elsewhere/blocks.py", "user"),
        ("/home/ann/project/.venv/lib/python3.11/site-packages/einops/layers.py", "third_party"),
        ("/home/ann/project/.venv/lib/python3.11/site-packages/torch/nn/modules/rnn.py", "torch"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "third_party"),
        ("/usr/lib/python3.11/random.py", "third_party"),
        ("/opt/conda/lib/python3.13t/contextlib.py", "third_party"),
        ("/x/lib/python3.11/site-packages/torchvision/ops.py", "third_party"),
        ("/x/lib/python3.11/site-packages/functorch/einops.py", "torch"),
        ("/x/lib/python3.11/site-packages/six.py", "third_party"),
        ("/home/ann/pytorch/torch/_dynamo/eval_frame.py", "torch"),
        ("/home/ann/pytorch/torch/nn/modules/module.py", "torch"),
        ("/home/ann/torch/train.py", "user"),
        ("/tmp/torchinductor_ann/ab/cabc.py", "torch"),
        ("/home/ann/torchinductor_tests/train.py", "user"),
        ("/x/t5/ct5wnelfeyzmk6wm5td2pvzlhlog3xmkqt6oxevbhctvdcltoxve.py", "torch"),
        ("/tmp/ipykernel_81/3021.py", "user"),
        ("/tmp/torch_geometric.nn.conv.gcn_conv_GCNConv_propagate_1_p8b4a1.py", "third_party"),
        ("/tmp/tmpab12cd_3/train.py", "user"),
        ("/home/ann/train.v1.2.py", "user"),
        ("/home/ann/.cache/huggingface/modules/transformers_modules/m/model.py", "third_party"),
        ("C:\\Users\\ann\\env\\Lib\\site-packages\\torch\\optim\\sgd.py", "torch"),
        ("C:\\Users\\ann\\work\\model.py", "user"),
        # Typed code is the user's, frozen and generated code is not.
        ("<stdin>", "user"),
        ("<ipython-input-3-aa>", "user"),
        ("<frozen importlib._bootstrap>", "third_party"),
        ("<attrs generated init app.A>", "third_party"),
        ("<eval_with_key>.12", "torch"),
        # torch drops what a path shares with its own folder; the rest still shows the owner.
        ("project/model.py", "user"),
        ("gs/model.py", "user"),
        ("nn/modules/module.py", "torch"),
        ("_dynamo/external_utils.py", "torch"),
        ("torch/_dynamo/guards.py", "torch"),
        ("site-packages/torch/random.py", "torch"),
        ("optim/sgd.py", "torch"),
        ("optim/schedule.py", "user"),
        ("nn/blocks.py", "user"),
    ],
)
def test_whose_code_it_is(file: str, owner: str) -> None:
    assert classify_ownership(file, ROOTS) == owner


def test_a_shortened_path_that_continues_a_root_is_the_users() -> None:
    """A user's folder called like one of torch's is recognised by the end of the root."""
    assert classify_ownership("nn/modules/mine.py", ("/home/ann/nn",)) == "user"
    assert classify_ownership("nn/modules/mine.py", ("/home/ann/other",)) == "torch"


def test_a_project_inside_site_packages() -> None:
    """A root below site-packages makes its files the user's; site-packages itself does not."""
    file = "/v/lib/python3.11/site-packages/mine/model.py"
    assert classify_ownership(file, ("/v/lib/python3.11/site-packages/mine",)) == "user"
    assert classify_ownership(file, ("/v/lib/python3.11/site-packages",)) == "third_party"
    launcher = "/v/lib/python3.11/site-packages/torch/distributed"
    assert classify_ownership(f"{launcher}/run.py", (launcher,)) == "torch"
