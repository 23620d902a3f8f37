"""Records of a TORCH_TRACE file as torch writes them."""

import hashlib

HEAD = b"V1121 14:17:00.227000 1679 torch/_dynamo/utils.py:2350] "


def line(metadata: bytes, payload: bytes | None = None) -> bytes:
    """One record as torch writes it."""
    if payload is None:
        return HEAD + metadata + b"\n"
    digest = hashlib.md5(payload).hexdigest().encode()
    lines = b"".join(b"\t" + each + b"\n" for each in payload.split(b"\n"))
    return HEAD + metadata[:-1] + b', "has_payload": "' + digest + b'"}\n' + lines
