from __future__ import annotations

from efo_service.web.security.access import ALLOWED, FailedAttempts


def test_after_ten_failures_in_a_minute_an_address_waits():
    attempts = FailedAttempts()
    for second in range(ALLOWED):
        assert attempts.retry_after("10.0.0.7", float(second)) is None
        attempts.failed("10.0.0.7", float(second))
    assert attempts.retry_after("10.0.0.7", 10.0) == 50.0
    assert attempts.retry_after("10.0.0.8", 10.0) is None
    assert attempts.retry_after("10.0.0.7", 60.0) is None


def test_the_addresses_of_an_ipv6_network_count_together():
    attempts = FailedAttempts()
    for number in range(ALLOWED):
        attempts.failed(f"2001:db8::{number:x}", 0.0)
    assert attempts.retry_after("2001:db8::ffff", 1.0) == 59.0
    assert attempts.retry_after("2001:db8:0:1::1", 1.0) is None


def test_the_number_of_addresses_is_bounded():
    attempts = FailedAttempts()
    for number in range(3000):
        attempts.failed(f"10.0.{number // 250}.{number % 250}", 0.0)
    assert len(attempts._failures) == 1000
