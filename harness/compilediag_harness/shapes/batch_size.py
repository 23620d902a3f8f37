"""How large a batch may be: from the memory of two small ones, rounded without passing the cap.

Pure, standard library only.
"""

from __future__ import annotations

from compilediag_harness.shapes.buckets import BucketsImpossible


def memory_cap(
    small: int, small_bytes: int, large: int, large_bytes: int, available_bytes: int
) -> int:
    """The largest batch whose peak fits, when the peak grows by the same for every row.

    Args:
        small: one batch size that was run.
        small_bytes: its peak.
        large: a larger one.
        large_bytes: its peak.
        available_bytes: what may be used; leave some room, such as a fifth of what is free.

    Raises:
        BucketsImpossible: the two peaks do not show what a row takes, or not one row fits.
    """
    if not (0 < small < large and 0 <= small_bytes < large_bytes):
        raise BucketsImpossible(
            f"peaks of {small_bytes} bytes at {small} rows and {large_bytes} at {large} do not "
            "tell what a row takes: measure two sizes that are further apart"
        )
    # In whole numbers: rows * step <= (available - small_bytes) * apart, from `small` on.
    apart, step = large - small, large_bytes - small_bytes
    cap = small + (available_bytes - small_bytes) * apart // step
    if cap < 1:
        raise BucketsImpossible(f"not one row fits into {available_bytes} bytes")
    return cap


def batch_size(wanted: int, *, cap: int, multiple: int = 1, power_of_two: bool = False) -> int:
    """The smallest allowed size that holds `wanted` rows, or the largest allowed one below the cap.

    Rounding up never passes the cap: where it would, the size is rounded down, and the batch has to
    be split.

    Args:
        wanted: rows of the largest batch.
        cap: rows at most: of memory, or of the knee.
        multiple: sizes that are multiples of it are allowed.
        power_of_two: only powers of two are allowed.

    Raises:
        BucketsImpossible: no allowed size is below the cap, or a number is out of range.
    """
    if wanted < 1 or multiple < 1:
        raise BucketsImpossible(f"{wanted} rows in multiples of {multiple} is no batch size")
    if power_of_two:
        step = 1 << (multiple - 1).bit_length()
        if step % multiple:
            raise BucketsImpossible(f"no power of two is a multiple of {multiple}")
        up, upper = max(step, 1 << (wanted - 1).bit_length()), 1 << cap.bit_length() >> 1
        allowed = upper >= step
    else:
        up, upper = -(-wanted // multiple) * multiple, cap // multiple * multiple
        allowed = upper >= multiple
    if not allowed:
        kind = "power of two and " if power_of_two else ""
        raise BucketsImpossible(f"no {kind}multiple of {multiple} is {cap} or less")
    return min(up, upper)
