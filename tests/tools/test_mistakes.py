"""The page of mistakes: its rows, and that efo says of each mistake what the page says."""

from __future__ import annotations

import pytest

from tools.mistakes.__main__ import make_all
from tools.mistakes.page import PAGE, text_of
from tools.mistakes.rows import read_mistakes
from tools.mistakes.running import Mistake, NothingSaidError, said_of


def test_there_are_many_mistakes_of_each_subject_and_each_is_there_once():
    mistakes = read_mistakes()
    written = [mistake.written for rows in mistakes.values() for mistake in rows]
    assert len(written) >= 130
    assert sorted(set(written)) == sorted(written)
    assert min(map(len, mistakes.values())) >= 3
    assert {"Handlers", "Leases", "Producing", "Configuration", "Commands", "Spark", "Kafka"} <= set(mistakes)


def test_a_mistake_of_each_kind_is_made():
    assert said_of(Mistake("efo.ConsumerSettings(read_mode='push')")).startswith("ConfigurationError: read_mode='push'")
    assert "efo.toml:2: [kinesis] stream" in said_of(Mistake("[kinesis]\nstream = 'my orders'", "configuration"))
    assert said_of(Mistake("tail orders --from yesterday", "command")).endswith("(exit status 64)")


@pytest.mark.parametrize("written", ["efo.ConsumerSettings()", "1 / 0"])
def test_what_efo_says_nothing_of_is_no_row(written):
    with pytest.raises(NothingSaidError):
        said_of(Mistake(written))


def test_the_page_is_made_of_the_rows_and_what_was_said():
    text = text_of({"Subject": [(Mistake("run\n  it | now"), "a | b"), (Mistake("tail", "command"), "no `stream`")]})
    assert "2 mistakes" in text
    assert "| `run`<br>&nbsp;&nbsp;`it \\| now` | `a \\| b` |" in text
    assert "| `efo tail` | `` no `stream` `` |" in text


@pytest.mark.page
def test_efo_says_of_each_mistake_what_the_page_says():
    said, silent = make_all()
    assert silent == []
    assert text_of(said) == PAGE.read_text(), "python -m tools.mistakes --write"
    texts = [text for rows in said.values() for _, text in rows]
    assert [text for text in texts if "Traceback" in text or len(text) > 700] == []
