"""The pages that show the subscription's machine show it as it is."""

import importlib.util

import pytest

from tests.paths import ROOT


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("subscription_diagram", ROOT / "tools" / "subscription_diagram.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_diagram_is_of_today(tool):
    for page in tool.PAGES:
        text = page.read_text()
        assert text == tool.renewed(text), f"{page.name} is stale: run python tools/subscription_diagram.py"


def test_a_page_without_a_place_for_it(tool):
    with pytest.raises(ValueError, match="no place for the diagram"):
        tool.renewed("# A page\n")
