"""Lookups of compile caches: torch's records read, counted, and judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from built_receipt import FRAME, built, compiled, ended, started, torch_seen
from trace_lines import artifact, metrics_line, text_of_trace

from compilediag.diagnosis.diagnose import diagnose
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.rules.compile_caches import LARGE_OPS, LOST_CACHE_S, REASONS, reason_of
from compilediag.readers.torch_trace.read import read_trace, trace_of
from compilediag.timeline.fold import fold
from compilediag.views.compile_time import render_compile_time
from compilediag.views.style import RenderOptions
from compilediag_harness.wire import (
    COMPONENTS_KEPT,
    CacheFolderRead,
    CacheLookedUp,
    CacheSettingsRead,
    CacheWritten,
    Event,
    lookup_of,
)

TRACES = Path(__file__).parents[1] / "data" / "traces_of_caches"
