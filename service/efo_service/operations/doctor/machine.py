"""Checks of this machine: disks, ports, Java."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from efo.protocol.native import DECODER
from efo.proxy import host_and_port
from efo_service.errors import UnavailableError
from efo_service.operations.doctor.running import Check, Outcome, failed, not_tested, passed

MIB: Final = 1024 * 1024

HttpGet = Callable[[str, int, str], tuple[int, str]]
"""Returns the status and the body of an HTTP GET to host, port and path. Raises UnavailableError."""


def disk_check(name: str, path: Path, min_free: int) -> Check:
    """Return the check of the free space where `path` is, or will be created. `min_free`: in bytes."""

    def look() -> Outcome:
        place = existing_parent(path)
        usage = shutil.disk_usage(place)
        return judge_disk(place, usage.free, usage.total, min_free)

    return Check(name, in_thread(look), f"check the file system of {path}")


def port_check(name: str, host: str, port: int, setting: str, http_get: HttpGet | None) -> Check:
    """Return the check of a port to serve on. `setting`: its name. `http_get`: to ask whether efo serves there."""
    return Check(name, in_thread(partial(_port, host, port, setting, http_get)), f"choose another {setting}")


def java_check(find_java: Callable[[], str] | None) -> Check:
    """Return the check of Spark's Java. `find_java`: describes it; None if the pipeline is not configured."""

    def look() -> Outcome:
        return not_tested("[pipeline] is not configured") if find_java is None else passed(find_java())

    return Check("java", in_thread(look), "install Java for Spark, or set JAVA_HOME")


def decoder_check() -> Check:
    """Return the check of the native step, which is an extra."""

    async def look() -> Outcome:
        if DECODER.step is not None:
            return passed(DECODER.detail)
        return failed(DECODER.detail, DECODER.remedy) if DECODER.remedy else not_tested(DECODER.detail)

    return Check("decoder", look, "remove efo-native")


def in_thread(look: Callable[[], Outcome]) -> Callable[[], Awaitable[Outcome]]:
    """Return a check that blocks, for use on trio. A thread that hangs is abandoned: it ends with the process."""

    async def run() -> Outcome:
        return await trio.to_thread.run_sync(look, abandon_on_cancel=True)

    return run


def existing_parent(path: Path) -> Path:
    """Return the path, or the nearest of its parents that exists."""
    path = path.absolute()
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def directory_problem(path: Path) -> Outcome | None:
    """Return why efo cannot create files in a directory, which may not exist yet; None if it can. Creates nothing."""
    place = existing_parent(path)
    remedy = f"give this user rights to write and search {place}, or choose another directory"
    if not place.is_dir():
        return failed(f"{place} is not a directory", "choose another directory")
    if not os.access(place, os.W_OK | os.X_OK):
        return failed(f"this user may not create files in {place}", remedy)
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return failed(f"{place} is on a read-only file system", "mount it for writing, or choose another directory")
    return None


def judge_disk(place: Path, free: int, total: int, min_free: int) -> Outcome:
    """Return what the free space of a file system means. Sizes in bytes."""
    found = f"{free // MIB:,} of {total // MIB:,} MiB are free at {place}"
    if free < min_free:
        return failed(found, f"free some space: less than {min_free // MIB:,} MiB are left")
    return passed(found)


def _port(host: str, port: int, setting: str, http_get: HttpGet | None) -> Outcome:
    if port == 0:
        return passed("the system chooses a free port")
    place = host_and_port(host, port)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        dual = host == "::" and socket.has_dualstack_ipv6()  # as the service listens
        socket.create_server((host, port), family=family, dualstack_ipv6=dual).close()
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        if in_use and http_get is not None and _is_efo(http_get, host, port):
            return passed(f"efo serves on {place}")
        who = ": another program has it" if in_use else ""
        return failed(f"cannot listen on {place}: {error.strerror or error}{who}", f"choose another {setting}")
    return passed(f"{place} is free")


class _Response(msgspec.Struct):
    status: str


def _is_efo(http_get: HttpGet, host: str, port: int) -> bool:
    try:
        _, body = http_get(host, port, "/livez")
        return msgspec.json.decode(body, type=_Response).status == "alive"
    except (UnavailableError, msgspec.MsgspecError, RecursionError):
        return False
