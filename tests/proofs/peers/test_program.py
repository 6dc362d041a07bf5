from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from proofs.peers import peers
from proofs.peers.peers import Peer
from proofs.peers.program import PeerError, build

RUNS = (sys.executable, "-c", "open('runs', 'a').write('x')")
FAILS = (sys.executable, "-c", "raise SystemExit('no compiler')")


@pytest.fixture
def peer(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "WORK", tmp_path)
    return Peer("one", "1", "kclpy", (), build=(RUNS,))


async def test_peers_with_the_same_program_are_built_once(peer):
    for each in (peer, replace(peer, name="two")):
        await build(each)
    assert (peer.directory / "runs").read_text() == "x"


async def test_a_build_that_fails_fails_for_each_peer(peer):
    for each in (replace(peer, build=(FAILS,)), replace(peer, name="two", build=(FAILS,))):
        with pytest.raises(PeerError, match="no compiler"):
            await build(each)
