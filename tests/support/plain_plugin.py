"""A pytest plugin that writes what the process of each test can see when it ends, and after all.

python -m pytest -p plain_plugin --states FOLDER plain_tests.py
"""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Generator
from pathlib import Path
from typing import Any

import process_state
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--states", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    import torch._dynamo

    gc.disable()
    random.seed(0)
    torch.manual_seed(0)
    recorder = process_state.Recorder()
    recorder.start()
    config.pluginmanager.register(_States(config.getoption("--states"), recorder))


class _States:
    """Innermost: while a test is observed, it still is when this looks."""

    def __init__(self, folder: Path, recorder: process_state.Recorder) -> None:
        self._folder = folder
        self._recorder = recorder

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
        try:
            return (yield)
        finally:
            self._write(pyfuncitem.name)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._write("at the end")

    def _write(self, name: str) -> None:
        state = {**process_state.look(), **self._recorder.state()}
        (self._folder / f"{name}.json").write_text(json.dumps(state), encoding="utf-8")
        self._recorder.forget()
