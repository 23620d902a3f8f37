"""Compiles five frames with the eager backend, each a second time for another flag."""

import torch

SOURCE = """
def frame(x, flag):
    y = torch.sin(x) * {number} + x @ x
    y = torch.relu(y - {number}) if flag else torch.tanh(y + {number})
    return (y.softmax(-1) * x).sum()
"""


def compile_frame(number: int, backend: str, x: torch.Tensor) -> None:
    """A frame of its own, compiled, then compiled again, with its backward, then run."""
    scope = {"torch": torch}
    exec(compile(SOURCE.format(number=number), f"<frame {number}>", "exec"), scope)
    compiled = torch.compile(scope["frame"], backend=backend)
    for flag in (True, False, True, False):
        compiled(x, flag).backward()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for frame in range(5):
        compile_frame(frame, "eager", torch.randn(16, 16, requires_grad=True))
