from __future__ import annotations

import pytest

from tools.docs.pages import parse_page
from tools.docs.site import assemble, name_of, navigation_problems, requests_elsewhere, sections

INDEX = "# Docs\n\n[a](a.md)\n\n## Start\n\n- [What](../README.md)\n\n## Reference\n\n- [A](a.md#x), [out](https://a.b/c.md)\n"


def pages(**texts):
    texts = {"docs/index.md": INDEX, "README.md": "# Top\n", "docs/a.md": "# A\n", **texts}
    return [parse_page(path, text) for path, text in texts.items()]


def test_the_lists_of_the_index_are_the_navigation():
    assert sections(pages()[0]) == {"Start": ["README.md"], "Reference": ["docs/a.md"]}
    assert navigation_problems(pages()) == []


def test_a_page_that_the_index_does_not_list_is_an_error():
    (problem,) = navigation_problems(pages(**{"docs/new.md": "# New\n"}))
    assert problem.startswith("docs/new.md is in no list of docs/index.md")


def test_a_page_that_is_listed_twice_is_an_error():
    assert navigation_problems(pages(**{"docs/index.md": INDEX + "\n## Again\n\n- [A](a.md)\n"})) == [
        "docs/a.md is listed twice in docs/index.md"
    ]


def test_a_file_in_the_lists_that_is_no_page_is_an_error():
    index = INDEX.replace("- [A]", "- [An example](../examples/orders/README.md)\n- [A]")
    (problem,) = navigation_problems(pages(**{"docs/index.md": index}))
    assert problem.startswith("examples/orders/README.md is in a list of docs/index.md, and no page of the site")


def test_a_missing_index_is_an_error():
    assert navigation_problems([]) == ["docs/index.md is missing"]


@pytest.mark.parametrize(
    ("path", "name"),
    [("docs/a.md", "a.md"), ("README.md", "overview.md"), ("CHANGELOG.md", "changelog.md"), ("docs/b/c.md", "b/c.md")],
)
def test_the_names_of_pages_in_the_site(path, name):
    assert name_of(path) == name


def test_links_lead_to_the_same_places_in_the_site(tmp_path):
    (root := tmp_path / "root").mkdir()
    (root / "config").mkdir()
    (root / "config" / "efo.toml").write_text("[kinesis]")
    links = "[a](docs/a.md#x) [c](config/efo.toml) [folder](config) [out](https://a.b) [self](#top)"
    text = f"# Top\n{links}\n```mermaid\n```\n"
    found = pages(**{"README.md": text, "docs/a.md": "# A\n[top](../README.md#top)\n"})
    made = {"reference/api.md": ("names", "# API\n[a](../a.md) [c](../../config/efo.toml)\n")}
    assemble(found, made, site := tmp_path / "site", root)
    assert (site / "overview.md").read_text() == (
        "# Top\n[a](a.md#x) [c](files/config/efo.toml) folder [out](https://a.b) [self](#top)\n```text\n```\n"
    )
    assert (site / "a.md").read_text() == "# A\n[top](overview.md#top)\n"
    assert (site / "reference" / "api.md").read_text() == "# API\n[a](../a.md) [c](../files/config/efo.toml)\n"
    assert (site / "files" / "config" / "efo.toml").exists()
    index = (site / "index.md").read_text()
    assert "- [API](reference/api.md): names" in index
    assert ":caption: Reference\n\na.md\nreference/api.md\n" in index


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("a.html", '<script src="https://cdn.example/x.js">', 1),
        ("a.html", '<link rel="stylesheet" href="//fonts.example/x.css">', 1),
        ("a.css", "@font-face { src: url(https://fonts.example/x.woff) }", 1),
        ("a.svg", "@import 'https://fonts.example/x.css'", 1),
        ("a.html", '<a href="https://example.com">a link is followed by a reader</a><script src="_static/x.js">', 0),
    ],
)
def test_what_a_browser_would_fetch_from_elsewhere_is_found(name, text, count, tmp_path):
    (tmp_path / name).write_text(text)
    assert len(requests_elsewhere(tmp_path)) == count
