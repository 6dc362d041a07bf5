"""The public names of a package, listed once in its stub `__init__.pyi`, and loaded when they are first used.

Type checkers read the stub itself. Each of its lines re-exports names (`from module import name as name`), so that
what a name is, where it comes from and that it is public stand in one place (PEP 484, stub files).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, cast

from efo.deprecations import RENAMED, renamed_object

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], tuple[str, ...]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package that has a stub (PEP 562)."""
    module = sys.modules[package]
    origins = dict(_origins(_stub(package)))

    def get(name: str) -> object:
        if name not in origins:
            if f"{package}.{name}" in RENAMED:
                return renamed_object(f"{package}.{name}")
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        origin = origins[name]
        value = import_module(f"{origin}.{name}") if origin == package else getattr(import_module(origin), name)
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(module), *origins}), tuple(sorted(origins))


def _stub(package: str) -> str:
    module = sys.modules[package]
    loader = cast("ResourceLoader", module.__loader__)  # of files, or of the zip archives that Spark ships
    return loader.get_data(f"{module.__path__[0]}/__init__.pyi").decode()


def _origins(stub: str) -> Iterator[tuple[str, str]]:
    """Yield each name with the module that it is imported from."""
    for statement in f"\n{stub}".split("\nfrom ")[1:]:
        module, _, names = statement.partition(" import ")
        for name in names.partition("\n\n")[0].strip("()\n ").split(","):
            if name.strip():
                yield name.split()[-1], module
