"""The definition of a setting, once: default, bounds and sentence stand at the field of its dataclass.

From it come the check of a value, what `help` shows, and in the service the setting of the same name: its key in TOML,
its environment variable, the schema, and the pages.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field, fields
from functools import wraps
from typing import Any, Final, TypeVar

from efo.checks import check_count, check_number, check_type, shown
from efo.deprecations import with_new_names
from efo.errors import ConfigurationError

_T = TypeVar("_T")
_KEY: Final = "definition"


@dataclass(frozen=True, slots=True)
class Definition:
    """What holds for a setting, besides its name and type.

    `sentence`: what it means, and after `Default:` what holds without a value. `above`, `least`, `most`: the bounds of
    a number; it must be above `above`. `choices`: the texts that it may be. `example`: of a setting that has no
    default. `infinite`: whether it may be `math.inf`.
    """

    sentence: str
    above: float | None = None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    example: object = None
    infinite: bool = False

    def check(self, name: str, value: object, kind: str) -> None:
        """Check a value. `kind`: the type of the setting, as it is written. Raises ConfigurationError."""
        optional = ", or None" if "None" in kind else ""
        unit = (" seconds" if name.endswith("_seconds") else " bytes" if name.endswith("_bytes") else "") + optional
        if value is None and optional:
            return
        if self.choices and value not in self.choices:
            *others, last = (repr(str(choice)) for choice in self.choices)
            raise ConfigurationError(f"{name}={shown(value)}: expected {', '.join(others)} or {last}{optional}")
        if kind == "bool":
            check_type(name, value, bool, "True or False")
        elif self.above is None and self.least is None:
            return
        elif "int" in kind:
            most = None if self.most is None else int(self.most)
            check_count(name, value, minimum=int(self.least or 0), maximum=most, unit=unit)
        else:
            check_number(name, value, zero=self.least == 0, infinite=self.infinite, unit=unit)
            if self.most is not None and self.most < value < float("inf"):  # type: ignore[operator] # it is a number
                raise ConfigurationError(f"{name}={value!r}: expected at most {self.most:g}{unit}")


def setting(
    default: _T,
    sentence: str,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    example: object = None,
    infinite: bool = False,
    is_secret: bool = False,
) -> _T:
    """Return the field of a setting, for a dataclass. The arguments are those of Definition.

    `default`: a dict is copied for each value, and does not take part in its hash. `is_secret`: it is not shown.
    """
    definition = Definition(sentence, above, least, most, choices, example, infinite)
    made: Any = field(
        **({"default_factory": default.copy, "hash": False} if isinstance(default, dict) else {"default": default}),
        metadata={_KEY: definition},
        repr=not is_secret,
    )
    return made  # type: ignore[no-any-return] # a dataclass makes it a value of this type


def definition_of(one: Field[Any]) -> Definition | None:
    """Return the definition of a field of a dataclass, None if it has none."""
    return one.metadata.get(_KEY)


def default_of(one: Field[Any]) -> object:
    """Return the default of a field that has one."""
    factory: Any = one.default_factory
    return one.default if factory is MISSING else factory()


def check_settings(value: Any) -> None:
    """Check all settings of a dataclass by their definitions. Raises ConfigurationError."""
    for one in fields(value):
        if (definition := definition_of(one)) is not None:
            definition.check(one.name, getattr(value, one.name), str(one.type))


def documented(kind: type[_T]) -> type[_T]:
    """Append what each setting means to the docstring of their dataclass, which also takes former names of settings."""
    lines = [
        f"`{one.name}` ({default_of(one)!r}): {definition.sentence}"
        for one in fields(kind)  # type: ignore[arg-type] # it is a dataclass
        if (definition := definition_of(one)) is not None
    ]
    kind.__doc__ = "\n".join([f"{kind.__doc__}\n", *lines])
    init: Any = kind.__init__

    @wraps(init)
    def with_former_names(self: Any, **settings: Any) -> None:
        init(self, **with_new_names(kind.__name__, settings))

    kind.__init__ = with_former_names  # type: ignore[method-assign]
    return kind
