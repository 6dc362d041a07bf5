"""Tells the mistakes of how a handler was written against efo, and for which surface, from failures by data.

A handler that misuses efo fails for each record alike, whatever the record contains. So no failure policy may skip it.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final

import efo.errors
from efo.checks import is_async, name_of, signature_of
from efo.errors import ConfigurationError, DeserializationError, HandlerError
from efo.exception_groups import leaf_exceptions
from efo.model import Batch, Record

_TYPES: Final = "Batch|Record|ShardStream|DeadLetter|HandlerResult"
_ERRORS: Final = "|".join(name for name in vars(efo.errors) if name.endswith("Error"))
_PATH: Final = r"(?:efo\.(?:\w+\.)*)?"
"""From Python 3.14 on, some messages name a type with its module."""
_ABOUT_EFO: Final = re.compile(
    rf"['\"]{_PATH}(?P<quoted>{_TYPES})['\"]"
    rf"|\b(?:type|non-iterable|not|got|to|concat|from) {_PATH}(?P<named>{_TYPES})\b"
    rf"|, (?:but )?{_PATH}(?P<found>{_TYPES}) found$"
    rf"|^(?:descriptor .* of )?(?P<first>{_TYPES}|{_ERRORS})(?:\.__init__)?\(\) "
)
"""How Python's own messages name a type: 'Record' object is not subscriptable, ... not Record, Batch.__init__() got."""
_REFUSED_CALL: Final = re.compile(r"^(?P<callee>\S+)\(\) (takes|missing|got (an unexpected|multiple|some positional))")
"""How Python says that arguments do not fit the parameters of a function."""
_NOT_FOUND: Final = re.compile(r"'efo(\.[\w.]+)?'|^name 'HOLD' is not defined")
"""How Python says that a name or module of efo does not exist."""
_ON_TRIO: Final = (
    "unrecognized yield message",
    "no running event loop",
    "Trio expected",
    "Trio was expecting",
    "from inside a run()",
    "must be called from async context",
    "thread wasn't created by Trio",
)
"""Texts of the exceptions of trio and asyncio when they are used wrongly, or instead of each other."""
_EFOS: Final = ("efo.consumer.", "efo.adapters.", "efo.aio.", "efo.sync.")
"""Modules of efo that call a handler."""
_PASSES_ON: Final = ("trio", "outcome", "functools", "contextlib", "contextvars")
"""Packages whose frames may stand between efo's call and the handler."""


def misuse_of_efo(error: Exception, batch: Batch | None = None) -> str | None:
    """Return why an exception of a handler comes from how it was written against efo; None if it does not.

    Of an exception group, any of its exceptions counts; and so does the exception during whose handling another one was
    raised, since libraries that retry wrap what they catch. `batch`: what the handler was called with.
    """
    for leaf in _causes(error):
        if isinstance(leaf, HandlerError) or (text := _misuse(leaf, batch)):
            return str(leaf) if isinstance(leaf, HandlerError) else text
    return None


def _causes(error: Exception) -> Iterator[Exception]:
    """Yield each exception of a group, and the exceptions that caused it or were being handled.

    Not those of a DeserializationError: it is about data, or a schema that data named, whatever was caught for it.
    """
    waiting, seen = [*leaf_exceptions(error)], set()
    while waiting:
        leaf = waiting.pop(0)
        if id(leaf) in seen:
            continue
        seen.add(id(leaf))
        yield leaf
        if isinstance(leaf, DeserializationError):
            continue
        for cause in (leaf.__cause__, leaf.__context__):
            if isinstance(cause, Exception):
                waiting.extend(leaf_exceptions(cause))


def _misuse(error: Exception, batch: Batch | None) -> str | None:
    text = str(error)
    if _is_about_efo(error, text, batch):
        return text
    match error:
        case TypeError() | RuntimeError() if any(sign in text for sign in _ON_TRIO) and not _is_data(error):
            return (
                "trio and asyncio are mixed: what efo.aio calls runs on asyncio, what efo calls on trio, and what "
                f"efo.sync calls on neither: {text.partition('.')[0]}"
            )
        case _:
            return None


def _is_about_efo(error: Exception, text: str, batch: Batch | None) -> bool:
    match error:
        case ConfigurationError():
            return _raised_by_efo(error)
        case AttributeError(obj=obj) if _is_efos(obj, batch):
            return True
        case AttributeError():
            return _is_assignment(error, text) or _NOT_FOUND.search(text) is not None
        case NameError() | ImportError():
            return _NOT_FOUND.search(text) is not None
        case TypeError():
            return _names_efo(error, text) or _is_refused_call(error, text) or _is_assignment(error, text)
        case _:
            return False


# --- what the exception is about ---------------------------------------------------------------------------------


def _is_efos(obj: object, batch: Batch | None) -> bool:
    """Return whether the object is one of efo's, or a field of the batch: its type is the same for each record."""
    if type(obj).__module__.partition(".")[0] == "efo" or getattr(obj, "__name__", None) == "efo":
        return True
    if isinstance(obj, tuple):
        return bool(obj) and isinstance(obj[0], Record)
    return obj is not None and batch is not None and any(obj is value for value in _fields(batch))


def _fields(batch: Batch) -> Iterable[object]:
    yield from (batch.stream, batch.shard_id)
    for record in batch.records:
        yield from (record.sequence_number, record.data, record.partition_key, record.tags)


def _is_assignment(error: Exception, text: str) -> bool:
    """Return whether a field of a batch or record was assigned: both are frozen."""
    return re.search(rf"immutable type: '({_TYPES})'", text) is not None or (
        ("cannot assign" in text or "cannot delete" in text) and _module(_last(error)).startswith("efo.")
    )


def _names_efo(error: TypeError, text: str) -> bool:
    """Return whether Python's message names a type of efo, and not one of the application with the same name."""
    if (match := _ABOUT_EFO.search(text)) is None:
        return False
    name = match["quoted"] or match["named"] or match["found"] or match["first"]
    last = _last(error)
    known = None if last is None else {**last.tb_frame.f_globals, **last.tb_frame.f_locals}.get(name)
    return known is None or str(getattr(known, "__module__", "")).partition(".")[0] == "efo"


def _raised_by_efo(error: ConfigurationError) -> bool:
    """Return whether efo itself refused an argument; but not a value, which may be made of data."""
    module = _module(_last(error))
    return module.startswith("efo.") and module != "efo.model"


def _is_data(error: Exception) -> bool:
    """Return whether the application raised it itself, perhaps with a text that contains data."""
    last = _last(error)
    return last is not None and _opname(last) == "RAISE_VARARGS" and _module(last).partition(".")[0] not in _LIBRARIES


_LIBRARIES: Final = {"trio", "asyncio", "outcome"}


# --- calls that were refused -------------------------------------------------------------------------------------


def _is_refused_call(error: TypeError, text: str) -> bool:
    """Return whether a call failed because of how the handler is written, and not because of `**data`.

    A call of an async function with arguments that are written out fails whatever the data is. With `*` or `**`, it
    does so in a wrapper that passes the arguments of efo's call on.
    """
    match, last = _REFUSED_CALL.search(text), _last(error)
    if match is None or last is None:
        return False
    known = last.tb_frame.f_locals
    is_library = _module(last).partition(".")[0] in _PASSES_ON
    if _opname(last) != "CALL_FUNCTION_EX":
        known = {**last.tb_frame.f_globals, **known}
    elif not is_library:
        known = {name: value for name, value in known.items() if name in last.tb_frame.f_code.co_freevars}
    called = [value for value in known.values() if _qualname(value) == match["callee"]]
    if _opname(last) == "CALL_FUNCTION_EX" and all(map(_passes_on, _from_efo(error))):
        return bool(called)
    return (_opname(last) != "CALL_FUNCTION_EX" or is_library) and any(map(is_async, called))


def _qualname(value: object) -> str:
    return str(getattr(value, "__qualname__", ""))


def _passes_on(entry: TracebackType) -> bool:
    has_varargs = bool(entry.tb_frame.f_code.co_flags & inspect.CO_VARARGS)
    module = _module(entry)
    return has_varargs or module.partition(".")[0] in _PASSES_ON or module.startswith(_EFOS)


# --- tracebacks --------------------------------------------------------------------------------------------------


def _from_efo(error: Exception) -> list[TracebackType]:
    """Return the entries of the traceback from efo's call of the handler on; all, if it has none of efo."""
    entries = [*_entries(error)]
    first = next((i for i, entry in enumerate(entries) if _module(entry).startswith("efo.consumer.")), 0)
    return entries[first:]


def _entries(error: Exception) -> Iterator[TracebackType]:
    entry = error.__traceback__
    while entry is not None:
        yield entry
        entry = entry.tb_next


def _last(error: Exception) -> TracebackType | None:
    """Return the innermost entry of the traceback: where the exception was raised."""
    return next(reversed([*_entries(error)]), None)


def _module(entry: TracebackType | None) -> str:
    return "" if entry is None else str(entry.tb_frame.f_globals.get("__name__", ""))


def _opname(entry: TracebackType) -> str:
    """Return the name of the instruction that raised."""
    instructions = dis.get_instructions(entry.tb_frame.f_code)
    return next((i.opname for i in instructions if i.offset == entry.tb_lasti), "")


_RUN_ON: Final = {"efo": "trio", "efo.aio": "asyncio", "efo.sync": "no event loop"}
_OF_HANDLERS: Final = frozenset({"batch", "record", "records", "values", "event"})


def check_surface(reader: object, surface: str) -> None:
    """Refuse a Handler or ProcessorReader of another surface. `surface`: the consumer's. Raises ConfigurationError."""
    own = getattr(reader, "surface", surface)
    if own != surface and own in _RUN_ON:
        kind = next(k.__name__ for k in type(reader).__mro__ if k.__name__ in {"Handler", "ProcessorReader"})
        raise ConfigurationError(
            f"reader is an {own}.{kind}, whose functions run on {_RUN_ON[own]}, and this consumer runs them on "
            f"{_RUN_ON[surface]}: use {surface}.{kind}"
        )


def check_no_handler(reader: object, surface: str) -> None:
    """Refuse a handler of batches as a reader of shards, by the name of its parameter. Raises ConfigurationError."""
    if not callable(reader) or (signature := signature_of(reader)) is None:
        return
    if (first := next(iter(signature.parameters), "")) in _OF_HANDLERS:
        raise ConfigurationError(
            f"reader {name_of(reader)}({first}) looks like a handler, and run calls its reader with a shard: pass "
            f"{surface}.Handler({name_of(reader)})"
        )
