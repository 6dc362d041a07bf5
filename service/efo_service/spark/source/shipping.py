"""What Spark ships from the Python that plans a query to those that read, and the check that they fit together.

The Python of the driver (or of a Spark Connect server) plans, and pickles readers for the Pythons of the executors. A
pickled object is efo's own, so it is understood by the same version only. Where efo is missing, pickle would say that a
module is missing, and not in which of these Pythons.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any, SupportsIndex

from pyspark import cloudpickle

from efo_service.version import VERSION


class Shipped:
    """A part of the source that Spark pickles. Where it is unpickled, the same version of efo must be installed.

    Otherwise unpickling raises ImportError in one sentence: which Python planned, which one reads, and what to do.
    """

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Callable[..., object], tuple[object, ...]]:
        content = cloudpickle.dumps((type(self), self.__getstate__()))  # type: ignore[no-untyped-call]
        return _make_unpack(), (content, VERSION, f"{sys.executable} on {socket.gethostname()}")


def _make_unpack() -> Callable[[bytes, str, str], Any]:
    """Return the function that unpickles.

    It is nested and uses no global name, so that cloudpickle ships its code: a Python without efo cannot import it.
    """

    def unpack(content: bytes, version: str, planner: str) -> Any:
        import pickle  # noqa: PLC0415 - this function has no globals
        import socket  # noqa: PLC0415 - the same
        import sys  # noqa: PLC0415 - the same

        def error(problem: str) -> ImportError:
            return ImportError(
                f'format("efo") was planned with efo {version} by {planner}, but {sys.executable} on'
                f" {socket.gethostname()}, which reads, {problem}: give both sides one environment with efo {version},"
                ' with --archives, PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON; see "On a cluster" in docs/spark.md'
            )

        try:
            from efo_service.version import VERSION as found  # noqa: N811, PLC0415 - the version here

            same = found == version
            cls, attributes = pickle.loads(content) if same else (None, None)  # noqa: S301 - from the query's planner
        except ImportError as missing:
            raise error(f"cannot import efo ({missing})") from None
        if cls is None:
            raise error(f"has efo {found}")
        instance = cls.__new__(cls)
        instance.__dict__.update(attributes or {})
        return instance

    return unpack
