"""The reference of the public names of efo, from their docstrings: MyST Markdown with Sphinx' Python domain."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Final

import efo
from tools.api import Module, module_of

_SHOWN: Final = {"__call__", "__iter__", "__aiter__", "__len__"}
_GROUPS: Final = ("Functions", "Classes", "Values and types", "Errors")


def api() -> str:
    """Return the page of all public names of `efo`."""
    found: dict[str, list[str]] = {group: [] for group in _GROUPS}
    modules = []
    for name in sorted(efo.__all__, key=str.lower):
        value = getattr(efo, name)
        if isinstance(value, ModuleType):
            modules.append(f"`efo.{name}`: {inspect.cleandoc(value.__doc__ or '').partition(chr(10))[0]}")
            continue
        origin = module_of("efo").origin(name)
        if origin is None:
            raise LookupError(f"efo.{name} has no definition")
        module, defined = module_of(origin[0]), origin[1]
        node = module.definitions[defined]
        is_error = isinstance(value, type) and issubclass(value, BaseException)
        match node:
            case ast.ClassDef():
                found["Errors" if is_error else "Classes"].append(_class(name, module, node))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found["Functions"].append(_function(f"efo.{name}", node, "function"))
            case _:
                found["Values and types"].append(_data(f"efo.{name}", node, module.docstrings[defined]))
    body = "".join(f"\n## {group}\n\n{''.join(parts)}" for group, parts in found.items())
    return (
        "# Python API\n\nEvery public name of `efo`, with its docstring. [Consuming a stream](../consuming.md) has "
        f"examples of how they are used.\n\nAlso public: {'; '.join(modules)}\n{body}"
    )


def _directive(depth: int, kind: str, signature: str, options: dict[str, str], body: str) -> str:
    """Return a directive. `options`: their values, as JSON, which is what MyST reads; "" for a flag."""
    fence = ":" * (8 - depth)
    lines = "".join(f":{name}: {json.dumps(value) if value else ''}".rstrip() + "\n" for name, value in options.items())
    return f"{fence}{{py:{kind}}} {signature}\n{lines}\n{body}\n{fence}\n\n"


def _function(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef, kind: str, depth: int = 0) -> str:
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    options = dict.fromkeys((one for one in ("classmethod", "staticmethod") if one in decorators), "")
    if isinstance(node, ast.AsyncFunctionDef):
        options["async"] = ""
    arguments = node.args
    if kind == "method" and "staticmethod" not in decorators:
        arguments = ast.arguments(**dict(ast.iter_fields(arguments)))
        arguments.args = arguments.args[1:]
    returns = ast.unparse(node.returns) if node.returns else None
    docstring = ast.get_docstring(node) or ""
    if "property" in decorators or "cached_property" in decorators:
        return _directive(depth, "property", name, {"type": returns} if returns else {}, docstring)
    signature = f"{name}({ast.unparse(arguments)})" + (f" -> {returns}" if returns else "")
    return _directive(depth, kind, signature, options, docstring)


def _class(name: str, module: Module, node: ast.ClassDef) -> str:
    docstring = ast.get_docstring(node) or ""
    init = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    signature = f"efo.{name}"
    if init is not None and "made by" not in docstring.lower():
        inner = ast.arguments(**dict(ast.iter_fields(init.args)))
        inner.args = inner.args[1:]
        signature += f"({ast.unparse(inner)})"
    bases = [ast.unparse(base) for base in node.bases if ast.unparse(base).endswith("Error")]
    body = (f"Is a: {', '.join(f'`{base}`' for base in bases)}.\n\n" if bases else "") + docstring
    members = "".join(_members(module, node))
    return _directive(0, "class", signature, {}, f"{body}\n\n{members}")


def _members(module: Module, node: ast.ClassDef) -> Iterator[str]:
    for member, following in zip(node.body, [*node.body[1:], None], strict=True):
        match member:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                if not name.startswith("_"):
                    options = {"type": ast.unparse(annotation)}
                    if value is not None and len(shown := ast.unparse(value)) < 60:  # noqa: PLR2004 - a short default
                        options["value"] = shown
                    yield _directive(1, "attribute", name, options, _text(following))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                is_setter = any(ast.unparse(one) == f"{name}.setter" for one in member.decorator_list)
                if not is_setter and (name in _SHOWN or not name.startswith("_")):
                    yield _function(name, member, "method", depth=1)
    for base in node.bases:
        origin = module.origin(base.id) if isinstance(base, ast.Name) else None
        if origin is not None and not hasattr(efo, origin[1]):  # the members of a base that is not public itself
            inherited = module_of(origin[0])
            definition = inherited.definitions[origin[1]]
            if isinstance(definition, ast.ClassDef):
                yield from _members(inherited, definition)


def _data(name: str, node: ast.stmt, docstring: str) -> str:
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    shown = ast.unparse(value) if value is not None else ""
    return _directive(0, "data", name, {"value": shown} if 0 < len(shown) < 200 else {}, docstring)  # noqa: PLR2004


def _text(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return inspect.cleandoc(text)
        case _:
            return ""
