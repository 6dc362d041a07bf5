"""All pages: their links lead somewhere, and every block is one that a test can run or an explicit exception."""

from __future__ import annotations

from tools.docs.examples import examples
from tools.docs.links import problems
from tools.docs.pages import read_pages
from tools.docs.site import navigation_problems


def test_every_link_leads_to_a_file_and_a_heading_that_exist():
    assert list(problems(read_pages())) == []


def test_every_page_is_in_the_navigation_of_the_site():
    assert navigation_problems(read_pages()) == []


def test_every_block_is_an_example_that_is_run_or_has_a_reason():
    found = list(examples(read_pages()))
    assert len(found) > 70
    assert [one.place for one in found if one.kind == "left_out" and not one.reason] == []


def test_a_file_of_a_page_is_used_by_its_commands():
    found = list(examples(read_pages()))
    for one in found:
        if one.kind == "file":
            name = one.block.mark.removeprefix("file:").strip()
            assert any(
                name in other.command.text for other in found if other.command and other.block.page == one.block.page
            )
