"""The ledger alone: batches are plain values."""

from __future__ import annotations

import msgspec
import pytest
from orders.ledger import Ledger
from orders.order import Order, encode

from efo import Batch, Record


def batch(*orders: Order, data: bytes | None = None) -> Batch:
    values = [encode(order) for order in orders] if data is None else [data]
    records = tuple(Record(str(100 + n), 0.0, value, "customer") for n, value in enumerate(values))
    return Batch("orders", "shardId-000000000000", records, None, 0, 0)


def test_each_customer_owes_the_sum_of_its_orders(tmp_path):
    ledger = Ledger(tmp_path / "bills.sqlite")
    ledger.bill(batch(Order(1, "ann", 250), Order(2, "bob", 100), Order(3, "ann", 50)))
    assert ledger.bills() == {"ann": 300, "bob": 100}


def test_an_order_that_is_delivered_twice_is_billed_once(tmp_path):
    ledger = Ledger(tmp_path / "bills.sqlite")
    for _ in range(2):
        ledger.bill(batch(Order(1, "ann", 250)))
    assert ledger.bills() == {"ann": 250}


def test_a_record_that_is_no_order_bills_nothing_of_its_batch(tmp_path):
    ledger = Ledger(tmp_path / "bills.sqlite")
    with pytest.raises(msgspec.DecodeError):
        ledger.bill(batch(data=b"{}"))
    assert ledger.bills() == {}
