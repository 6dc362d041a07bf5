"""Prints the public names of efo with their meanings, and what is wrong with them: `make api`.

Public are the names in `efo.__all__` and, for classes, their public methods, properties and fields. A class whose
docstring says what it is "made by" has no public constructor. Two rules hold for all of them:

- Every parameter, result and field has a type.
- Every name of efo in one of these types can be imported from `efo` or one of its public modules.

It runs in an environment with efo alone, without its extras, so it also shows that each name can be imported there.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias

import efo

_SELF: Final = {"self", "cls"}
_MADE_BY: Final = "made by"
_PROTOCOL_METHODS: Final = {"__init__", "__call__", "__iter__", "__aiter__", "__anext__", "__len__"}

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Name:
    """A public name. `untyped`, `unexported`: the places and types that break a rule."""

    name: str
    meaning: str
    untyped: list[str] = field(default_factory=list)
    unexported: list[str] = field(default_factory=list)


class Module:
    """The source of a module of efo: its definitions, and where its imported names come from."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.definitions: dict[str, ast.stmt] = {}
        self.docstrings: dict[str, str] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        source = Path(inspect.getfile(importlib.import_module(name)))
        tree = ast.parse(source.read_text())
        stub = source.with_suffix(".pyi")
        for node in ast.walk(ast.parse(stub.read_text()) if stub.exists() else tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self.imports |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
            for defined in _names_of(node):
                self.definitions[defined] = node
                self.docstrings[defined] = _docstring(node, following)

    def origin(self, name: str) -> tuple[str, str] | None:
        """Return module and name of the definition of a name of efo; None for names of others and type variables."""
        if name in self.definitions:
            source = ast.unparse(self.definitions[name])
            return None if "TypeVar(" in source or "ParamSpec(" in source else (self.name, name)
        module, original = self.imports.get(name, ("", ""))
        if not module.startswith("efo"):
            return None
        return module_of(module).origin(original)


@cache
def module_of(name: str) -> Module:
    """Return the source of a module."""
    return Module(name)


def _names_of(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def _docstring(node: ast.stmt, following: ast.stmt | None) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return ast.get_docstring(node) or ""
    match following:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return inspect.cleandoc(text)
        case _:
            return ""


def _meaning(docstring: str) -> str:
    """Return the first sentence."""
    first = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"(?<=[.]) (?=[A-Z`])", first, maxsplit=1)[0].removesuffix(":")


class Api:
    """The public names, found from `efo.__all__`."""

    def __init__(self) -> None:
        self._public = set()
        for name in efo.__all__:
            value = getattr(efo, name)
            if isinstance(value, ModuleType):
                self._public |= {(value.__name__, ""), *_inner(value).values()}
            else:
                self._public.add(_definition(name))

    def names(self) -> Iterator[Name]:
        """Return each public name, those of public modules included."""
        for name in efo.__all__:
            value = getattr(efo, name)
            if isinstance(value, ModuleType):
                yield Name(name, _meaning(value.__doc__ or ""))
                for inner, (module_name, defined) in _inner(value).items():
                    if not hasattr(efo, inner):
                        yield self._describe(f"{name}.{inner}", module_of(module_name), defined)
            else:
                module_name, defined = _definition(name)
                yield self._describe(name, module_of(module_name), defined)

    def _describe(self, name: str, module: Module, defined: str) -> Name:
        docstring = module.docstrings[defined]
        described = Name(name, _meaning(docstring))
        node = module.definitions[defined]
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._check_function(described, module, node, name)
            case ast.ClassDef():
                self._check_class(described, module, node, name, docstring)
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                self._check_type(described, module, value)
        return described

    def _check_class(self, name: Name, module: Module, node: ast.ClassDef, where: str, docstring: str) -> None:
        is_made = _MADE_BY in docstring.lower()
        for member in node.body:
            match member:
                case ast.AnnAssign(target=ast.Name(id=field_name), annotation=annotation):
                    if not field_name.startswith("_"):
                        self._check_type(name, module, annotation)
                case ast.FunctionDef(name=method) | ast.AsyncFunctionDef(name=method):
                    if method == "__init__":
                        self._check_attributes(name, module, member, where)
                    is_public = method in _PROTOCOL_METHODS or not method.startswith("_")
                    if is_public and not (method == "__init__" and is_made):
                        self._check_function(name, module, member, f"{where}.{method}")
        for base in node.bases:
            origin = module.origin(base.id) if isinstance(base, ast.Name) else None
            if origin is not None and origin not in self._public:
                inherited = module_of(origin[0])
                definition = inherited.definitions[origin[1]]
                if isinstance(definition, ast.ClassDef):
                    self._check_class(name, inherited, definition, where, docstring)

    def _check_attributes(self, name: Name, module: Module, init: _Function, where: str) -> None:
        """Check the public attributes that a constructor assigns: a parameter has the parameter's type."""
        parameters = {argument.arg for argument in (*init.args.args, *init.args.kwonlyargs) if argument.annotation}
        for node in ast.walk(init):
            match node:
                case ast.AnnAssign(target=ast.Attribute(attr=attribute), annotation=annotation):
                    if not attribute.startswith("_"):
                        self._check_type(name, module, annotation)
                case ast.Assign(targets=[ast.Attribute(attr=attribute)], value=value):
                    is_parameter = isinstance(value, ast.Name) and value.id in parameters
                    if not attribute.startswith("_") and not is_parameter:
                        name.untyped.append(f"{where}.{attribute}")
                case _:
                    pass

    def _check_function(self, name: Name, module: Module, node: _Function, where: str) -> None:
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for argument in every:
            if argument is None or argument.arg in _SELF:
                continue
            unpacked = _unpacked(argument.annotation)
            origin = None if unpacked is None else module.origin(unpacked)
            if origin is not None:  # its fields are the arguments
                self._check_fields(name, *origin)
            elif argument.annotation is None:
                name.untyped.append(f"{where}({argument.arg})")
            else:
                self._check_type(name, module, argument.annotation)
        if node.returns is not None:
            self._check_type(name, module, node.returns)
        elif node.name != "__init__":
            name.untyped.append(f"{where}()")

    def _check_fields(self, name: Name, module_name: str, defined: str) -> None:
        fields = module_of(module_name).definitions[defined]
        if isinstance(fields, ast.ClassDef):
            self._check_class(name, module_of(module_name), fields, name.name, "")

    def _check_type(self, name: Name, module: Module, annotation: ast.expr) -> None:
        for node in ast.walk(annotation):
            origin = module.origin(node.id) if isinstance(node, ast.Name) else None
            if origin is None or origin in self._public or (origin[0], "") in self._public:
                continue
            if f"{origin[0]}.{origin[1]}" not in name.unexported:
                name.unexported.append(f"{origin[0]}.{origin[1]}")


def _unpacked(annotation: ast.expr | None) -> str | None:
    """Return the name of the TypedDict whose fields are the keyword arguments, None for another annotation."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Unpack"), slice=ast.Name(id=name)):
            return name
    return None


def _inner(public: ModuleType) -> dict[str, tuple[str, str]]:
    """Return the public names of a module, of a package those of its modules too, and where they are defined."""
    module = module_of(public.__name__)
    names = [*(name for name in module.definitions if not name.startswith("_")), *getattr(public, "__all__", ())]
    origins = {name: origin for name in names if (origin := module.origin(name)) is not None}
    if Path(inspect.getfile(public)).with_suffix(".pyi").exists():
        return origins
    return {name: origin for name, origin in origins.items() if f"{origin[0]}.".startswith(f"{public.__name__}.")}


def _definition(name: str) -> tuple[str, str]:
    """Return module and name of the definition of a public name."""
    origin = module_of("efo").origin(name)
    if origin is None:
        raise SystemExit(f"efo.{name}: no definition found in efo")
    return origin


def main() -> int:
    """Print the names; return 1 if a rule is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print each name as a JSON object, for programs")
    arguments = parser.parse_args()
    names = list(Api().names())
    width = max(len(name.name) for name in names)
    for name in names:
        if arguments.json:
            print(json.dumps(vars(name)))
        else:
            print(f"{name.name:{width}}  {name.meaning or '(no docstring)'}")
            for where in name.untyped:
                print(f"{'':{width}}  ! {where} has no type")
            for type_name in name.unexported:
                print(f"{'':{width}}  ! {type_name} is in its signature and has no public place")
    untyped, unexported = (sum(len(getattr(name, kind)) for name in names) for kind in ("untyped", "unexported"))
    unexplained = [name.name for name in names if not name.meaning]
    if unexplained:
        print(f"no meaning: {', '.join(unexplained)}")
    print(json.dumps({"names": len(names), "untyped": untyped, "unexported": unexported}))
    return 1 if untyped or unexported or unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
