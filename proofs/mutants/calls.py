"""A pytest plugin: which functions each test calls, and runs of chosen tests.

EFO_CALLS: a file to write, with the functions of this checkout that each test calls, and its CPU seconds.
EFO_CHOSEN: a file with the ids of tests; of the test files that it names, no other tests are run. Both are JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import pytest

ANY: Final = "*"
"""Stands for all functions: the test starts processes, whose calls are not seen, or ended the tracing."""

_calls: dict[str, dict[int, CodeType]] = {}
_now: dict[int, CodeType] = {}  # by id, since the hash of code is slow
_unseen: set[str] = set()
_seconds: dict[str, float] = {}
_test = ""


def _note(frame: FrameType, _event: str, _argument: object) -> None:
    """Note the call of a function, and trace nothing inside it."""
    code = frame.f_code
    _now[id(code)] = code


def _hear(event: str, _arguments: tuple[object, ...]) -> None:
    if event in {"subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"}:
        _unseen.add(_test)


def pytest_configure() -> None:
    """Begin to trace. What is called before the first test counts as called by each test."""
    if "EFO_CALLS" in os.environ:
        sys.addaudithook(_hear)
        threading.settrace(_note)
        sys.settrace(_note)
        _calls[""] = _now


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note what a test and its fixtures call."""
    global _now, _test  # noqa: PLW0603 - the state of the one run
    if "EFO_CALLS" not in os.environ:
        return (yield)
    _test = item.nodeid
    _now = _calls[_test] = {}
    sys.settrace(_note)
    began = time.process_time()
    result = yield
    _seconds[_test] = time.process_time() - began
    if sys.gettrace() is not _note:
        _unseen.add(_test)
    return result


def pytest_sessionfinish() -> None:
    """Write what was noted."""
    if "EFO_CALLS" in os.environ:
        sys.settrace(None)
        threading.settrace(None)
        called = {test: [ANY] if test in _unseen else sorted(_functions(codes)) for test, codes in _calls.items()}
        Path(os.environ["EFO_CALLS"]).write_text(json.dumps({"calls": called, "seconds": _seconds}))


def _functions(codes: dict[int, CodeType]) -> set[str]:
    """Return the functions as `path function`, with the names that mutants have."""
    root = f"{Path.cwd()}{os.sep}"
    found = set()
    for code in codes.values():
        if code.co_filename.startswith(root):
            names = [name for name in code.co_qualname.split(".") if not name.startswith("<")]
            found.add(f"{code.co_filename[len(root) :]} {'.'.join(names)}")
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the chosen tests."""
    if "EFO_CHOSEN" in os.environ:
        chosen: dict[str, list[str]] = json.loads(Path(os.environ["EFO_CHOSEN"]).read_text())
        tests = {test for ids in chosen.values() for test in ids}
        is_kept = [item.nodeid in tests or item.nodeid.partition("::")[0] not in chosen for item in items]
        items[:] = [item for item, is_chosen in zip(items, is_kept, strict=True) if is_chosen]
