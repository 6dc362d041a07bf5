"""The names of the arguments that a function takes, those of an unpacked TypedDict included."""

import inspect


def arguments_of(function):
    """Return the names of the arguments of a function."""
    own = inspect.signature(function)
    names = set()
    for name, parameter in own.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            unpacked = parameter.annotation.removeprefix("Unpack[").removesuffix("]")
            names |= set(inspect.unwrap(function).__globals__[unpacked].__annotations__)
        else:
            names.add(name)
    return names
