"""From the data of records to values with types: `efo.deserialize(handler, efo.deserializers.json(Order))`.

A deserializer is a function of a record: `Callable[[Record], T]`. An outer layer takes the inner one as its argument:
`gzip(json(Order))` decompresses, then decodes. Each name is loaded when it is first used, and the library behind it
when the deserializer is made.
"""

from __future__ import annotations

from efo.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
