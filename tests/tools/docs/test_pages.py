from __future__ import annotations

from tools.docs.links import problems
from tools.docs.pages import Block, parse_page

TEXT = """\
# The page

<!-- example: poison -->
```python
1 / 0
```

## Ring `efo`, twice: a-b & c

- a list

  ```console
  $ true
  ```

## Twice
## Twice

    indented
"""


def test_the_blocks_have_their_lines_and_marks():
    assert parse_page("docs/a.md", TEXT).blocks == (
        Block("docs/a.md", 4, "python", "1 / 0\n", "example: poison"),
        Block("docs/a.md", 12, "console", "$ true\n"),
        Block("docs/a.md", 19, "indented", "indented\n"),
    )


def test_the_anchors_are_those_of_github():
    page = parse_page("docs/a.md", TEXT + '\n<a id="here"></a>\n')
    assert page.anchors == {"the-page", "ring-efo-twice-a-b--c", "twice", "twice-1", "here"}
    assert page.title == "The page"


def check(text, tmp_path, **others):
    (tmp_path / "docs").mkdir()
    pages = [parse_page("docs/a.md", text), *(parse_page(f"docs/{name}.md", other) for name, other in others.items())]
    for page in pages:
        (tmp_path / page.path).write_text(page.text)
    return list(problems(pages, tmp_path))


def test_links_to_files_and_headings_that_exist_are_fine(tmp_path):
    text = "# A\n[b](b.md#a-heading), [self](#a), [folder](../docs), [out](https://example.com/x#y)\n"
    assert check(text, tmp_path, b="## A heading\n") == []


def test_each_link_that_leads_nowhere_is_named_with_its_place(tmp_path):
    text = """
[b](b.md#no)
[c](c.md)
![d](d.svg)
[e](#e)
[f](../../f)
[g](http://example.com)
[h](https:///x)
[a](a.md)

<img src="i.svg" alt="">
"""
    found = check(text, tmp_path, b="")
    assert [line.partition(": ")[2] for line in found] == [
        "b.md#no: docs/b.md has no heading #no",
        "c.md: no such file",
        "d.svg: no such file",
        "#e: docs/a.md has no heading #e",
        "../../f: leads out of the repository",
        "http://example.com: write https://",
        "https:///x: no host name",
        "a.md: leads to the top of its own page: name a heading, or leave it out",
        "i.svg: no such file",
    ]
    assert found[-1].startswith("docs/a.md:11: ")
