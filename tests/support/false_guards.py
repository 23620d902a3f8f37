"""Guards that were false, as torch 2.13 tells them: a captured flag, and a buffer that grew."""

from compilediag_harness.wire import FalseGuard, GuardFacts, Location

FRAME = Location("/home/u/model.py", 10, "forward")
HOOK = Location("/home/u/hooks.py", 21, "record")
FLAG = FalseGuard(
    "L['self']._forward_hooks[0].__closure__[0].cell_contents",
    "FALSE_MATCH",
    "L['self']._forward_hooks[0].__closure__[0].cell_contents == False",
    None,
    "True",
    HOOK,
    facts=GuardFacts(free_variable="capture"),
    writers=(Location("/home/u/hooks.py", 32, "watch.<locals>.setc"),),
)
PE = FalseGuard(
    "L['self']._modules['pos']._buffers['pe']",
    "TENSOR_MATCH",
    "tensor 'x' size mismatch at index 0. expected 1, actual 8",
    "[1, 16]",
    "[8, 16]",
    FRAME,
    facts=GuardFacts(holder_kind="module"),
)
