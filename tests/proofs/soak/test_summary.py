import pytest

from efo_service.demo.load import Comparison
from proofs.soak.__main__ import summarize
from proofs.soak.run import Soak
from proofs.soak.samples import Sample

EXACT = Comparison(found=900, lost=0, duplicated=0, unexpected=0, order_violations=0)


def soak(comparison=EXACT, leak=0.0):
    samples = [Sample(at, 100, 300_000 + leak * at, 40, 20, 8, 0.0) for at in range(600)]
    return Soak(samples, [(600.0, 900)], {"reshards": 3, "faults": 4, "records": 900}, comparison)


@pytest.mark.parametrize("field", ["lost", "duplicated", "unexpected", "order_violations"])
def test_one_record_that_is_wrong_fails_a_soak_of_any_length(field):
    counts = {name: getattr(EXACT, name) for name in EXACT.__dataclass_fields__} | {field: 1}
    assert summarize(soak(Comparison(**counts)), 60.0)[0]["soak"] == "failed"
    assert summarize(soak(), 60.0)[0]["soak"] == "passed"


def test_growth_fails_a_long_soak_and_is_reported_of_a_short_one():
    long, short = (summarize(soak(leak=100), seconds)[0] for seconds in (600.0, 599.0))
    assert (long["soak"], long["growth_judged"], long["growth"]["blocks"]["flat"]) == ("failed", True, False)
    assert (short["soak"], short["growth_judged"], short["growth"]["blocks"]["flat"]) == ("passed", False, False)
    assert summarize(soak(), 600.0)[0]["soak"] == "passed"
