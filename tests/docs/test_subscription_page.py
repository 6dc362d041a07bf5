"""The pages with the state diagram of the subscription are up to date."""

import importlib.util

import pytest

from tests.paths import ROOT


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("subscription_diagram", ROOT / "tools" / "subscription_diagram.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_diagram_of_every_page_is_up_to_date(tool):
    for page in tool.PAGES:
        text = page.read_text()
        assert text == tool.with_diagram(text), f"{page.name} is out of date: run python tools/subscription_diagram.py"


def test_a_page_without_the_markers_is_rejected(tool):
    with pytest.raises(ValueError, match="lacks a marker"):
        tool.with_diagram("# A page\n")
