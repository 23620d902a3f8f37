"""Memory of the host and of CUDA devices."""

from compilediag.receipt.schema.record import Record


class GrowingBucket(Record, frozen=True, kw_only=True):
    """The counter and pool that grew most in steady state."""

    bucket: str
    grown_bytes: int
    first_step: int | None = None
    last_step: int | None = None


class Allocator(Record, frozen=True, kw_only=True):
    """The counters of the fullest device's allocator."""

    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    inactive_split_bytes: int | None = None
    num_alloc_retries: int | None = None
    num_ooms: int | None = None
    largest_growing_bucket: GrowingBucket | None = None


class DeviceRecord(Record, frozen=True, kw_only=True):
    """One CUDA device, at the last reading."""

    device: int
    allocated_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    active_bytes: int | None = None
    inactive_split_bytes: int | None = None
    num_alloc_retries: int | None = None
    num_ooms: int | None = None
    num_device_alloc: int | None = None
    num_device_free: int | None = None
    num_sync_all_streams: int | None = None
    largest_growing_bucket: GrowingBucket | None = None
    hint: str | None = None


class MemorySection(Record, frozen=True, kw_only=True):
    """Peaks of memory."""

    host_peak_bytes: int | None = None
    devices: tuple[DeviceRecord, ...] | None = None
    allocator: Allocator = Allocator()
    hint: str | None = None
