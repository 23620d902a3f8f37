"""Receipt ids: ULIDs, which sort by the millisecond they were made in.

Pure: the time and the random bytes are passed in.
"""

from __future__ import annotations

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_BITS, _RANDOM_BYTES, _LENGTH = 48, 10, 26


def ulid(unix_ms: int, random_bytes: bytes) -> str:
    """26 characters of Crockford's base 32: 48 bits of milliseconds, then 80 random bits.

    Raises:
        ValueError: the time does not fit 48 bits, or there are not 10 random bytes.
    """
    if not 0 <= unix_ms < 1 << _TIME_BITS:
        raise ValueError(f"{unix_ms} ms is outside the range of a ULID")
    if len(random_bytes) != _RANDOM_BYTES:
        raise ValueError(f"a ULID takes {_RANDOM_BYTES} random bytes, got {len(random_bytes)}")
    number = unix_ms << (8 * _RANDOM_BYTES) | int.from_bytes(random_bytes, "big")
    shifts = range(5 * (_LENGTH - 1), -1, -5)
    return "".join(_ALPHABET[number >> shift & 31] for shift in shifts)
