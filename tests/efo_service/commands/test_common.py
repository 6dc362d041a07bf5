"""What the operator's commands share."""

from __future__ import annotations

import pytest
import trio

from efo.errors import LeaseStoreUnavailableError
from efo_service.commands.common import waiting_for


async def test_a_command_says_every_five_seconds_what_it_waits_for(autojump_clock, capsys) -> None:
    async with waiting_for("Kinesis"):
        await trio.sleep(4)
    assert capsys.readouterr().err == ""
    async with waiting_for("Kinesis"):
        await trio.sleep(11)
    assert capsys.readouterr().err == "note: waiting for Kinesis\n" * 2


async def test_an_error_of_what_is_waited_for_is_raised_alone(autojump_clock) -> None:
    with pytest.raises(LeaseStoreUnavailableError, match="gone"):
        async with waiting_for("the lease store"):
            raise LeaseStoreUnavailableError("gone")
