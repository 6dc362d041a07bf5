"""Tokens have names, and there may be two of a kind."""

from __future__ import annotations

from efo_service.web.security.access import Access, Caller, tokens_of

OLD, NEW, READ = "o" * 24, "n" * 24, "r" * 24


def caller(token=None, cookie=None):
    headers = {"host": "efo:8080"} | ({} if token is None else {"authorization": f"Bearer {token}"})
    return Caller("10.0.0.7", headers, cookie)


def test_a_token_has_its_name_or_the_beginning_of_its_hash() -> None:
    [first, second] = tokens_of(f"alice:{OLD} {NEW}")
    assert (first.name, first.secret, second.secret) == ("alice", OLD, NEW)
    assert second.name.startswith("token ")
    assert NEW not in second.name
    # What is short after the colon is no name and token, but a token with a colon.
    assert [token.secret for token in tokens_of("alice:0123456789")] == ["alice:0123456789"]


def test_both_tokens_are_taken_while_clients_change_and_then_only_the_new_one() -> None:
    both, new = Access(*tokens_of(f"{OLD} {NEW}")), Access(*tokens_of(NEW))
    assert [both.may_act(caller(token), 0.0) for token in (OLD, NEW)] == ["allowed", "allowed"]
    assert [new.may_act(caller(token), 0.0) for token in (OLD, NEW)] == ["token_needed", "allowed"]
    session = both.session(both.find(OLD), 0.0)
    assert both.may_act(caller(cookie=session), 1.0) == "allowed"
    assert new.may_act(caller(cookie=session), 1.0) == "token_needed"


def test_a_token_for_reading_may_not_act_and_neither_may_its_session() -> None:
    access = Access(*tokens_of(f"alice:{NEW}"), *tokens_of(f"grafana:{READ}", may_act=False))
    session = access.session(access.find(READ), 0.0)
    for who in (caller(READ), caller(cookie=session)):
        assert access.may_read(who, 1.0) == "allowed"
        assert access.may_act(who, 1.0) == "read_only"
        assert access.holder(who, 1.0).name == "grafana"
    assert access.holder(caller(NEW), 1.0).name == "alice"
