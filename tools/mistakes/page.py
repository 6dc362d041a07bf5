"""The page docs/mistakes.md: its text, from the mistakes and what was said of each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.mistakes.running import PRELUDE, Mistake

PAGE: Final = Path(__file__).parents[2] / "docs" / "mistakes.md"

_HEAD: Final = """# Mistakes, and what efo says of them

{count} mistakes that people make, each with the message: what is wrong, where, and what to do. `python -m
tools.mistakes --write` makes each of them and writes this page; a test fails while it is old. What happens outside, in
AWS, networks and files, is in [troubleshooting](troubleshooting.md).

In the programs, `stream` is a stream with ten records in one shard, and `handle`, `work` and `read` are:

```python{prelude}```

Programs that begin with `await` or `async with` run on trio. A message that begins with WARNING or INFO is a line of
the log: the program runs on. `DIRECTORY`, `PORT` and `TIME` stand for what differs.
"""


def text_of(said: Mapping[str, Sequence[tuple[Mistake, str]]]) -> str:
    """Return the page. `said`: the mistakes of each subject, with what efo says of them."""
    count = sum(map(len, said.values()))
    parts = [_HEAD.format(count=count, prelude=PRELUDE), *(_section(subject, rows) for subject, rows in said.items())]
    return "\n".join(parts)


def _section(subject: str, rows: Sequence[tuple[Mistake, str]]) -> str:
    lines = [f"## {subject}", "", "| what one writes | what efo says |", "|---|---|"]
    lines += [f"| {'<br>'.join(_code(mistake))} | {_escaped(text)} |" for mistake, text in rows]
    return "\n".join([*lines, ""])


def _code(mistake: Mistake) -> Iterator[str]:
    for line in (mistake.shown or mistake.written).splitlines():
        bare = line.lstrip()
        indent = "&nbsp;" * (len(line) - len(bare))
        command = "efo " if mistake.kind == "command" else ""
        fence = "``" if "`" in bare else "`"
        yield f"{indent}{fence}{command}{bare.replace('|', chr(92) + '|')}{fence}"


def _escaped(text: str) -> str:
    """Return a message as text of Markdown: in code, so that nothing of it is read as markup."""
    fence = "``" if "`" in text else "`"
    return (
        f"{fence}{' ' if fence == '``' else ''}{text.replace('|', chr(92) + '|')}{' ' if fence == '``' else ''}{fence}"
    )
