"""Raises KeyboardInterrupt at a chosen place of efo's code, where Python would run a signal handler."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

CHECKS_AFTER = ("CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "RESUME")
"""The instructions of CPython (3.11 to 3.13) after which a signal handler may run."""


class Interrupt:
    """Interrupts this thread once, at the place of this number in modules whose names contain `/efo/adapters/` or so.

    `has_come`: whether there was such a place.
    """

    def __init__(self, number: int, *folders: str) -> None:
        self.has_come = False
        self._left = number
        self._folders = folders
        self._names: dict[CodeType, dict[int, str]] = {}
        self._last: dict[FrameType, str] = {}

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Interrupt what the block calls."""
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)
            self._last.clear()

    def _on_call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if self.has_come or not any(folder in frame.f_code.co_filename for folder in self._folders):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._on_opcode

    def _on_opcode(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event != "opcode" or self.has_come:
            return self._on_opcode
        code = frame.f_code
        if code not in self._names:
            self._names[code] = {found.offset: found.opname for found in dis.get_instructions(code)}
        last, self._last[frame] = self._last.get(frame), self._names[code].get(frame.f_lasti, "")
        if last in CHECKS_AFTER:
            if self._left == 0:
                self.has_come = True
                raise KeyboardInterrupt
            self._left -= 1
        return self._on_opcode
