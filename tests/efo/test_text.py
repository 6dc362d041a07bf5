"""The text of files: UTF-8 with or without a mark; everything else is refused with what it is."""

import codecs

import pytest

from efo.text import decode, other_encoding, without_mark

TEXT = 'name = "é"\n'


@pytest.mark.parametrize("content", [TEXT.encode(), codecs.BOM_UTF8 + TEXT.encode()], ids=["plain", "mark"])
def test_utf8_is_read_with_and_without_a_mark(content):
    assert decode(content) == TEXT
    assert without_mark(content) == TEXT.encode()
    assert other_encoding(content) is None


def test_line_breaks_of_windows_and_an_empty_file_are_text():
    assert decode(b"a\r\nb\r\n") == "a\r\nb\r\n"
    assert decode(b"") == decode(codecs.BOM_UTF8) == ""


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("utf-16", "UTF-16"), ("utf-32", "UTF-32"), ("utf-16-le", "UTF-16"), ("utf-16-be", "UTF-16")],
)
def test_other_encodings_of_unicode_are_named(encoding, name):
    content = TEXT.encode(encoding)
    with pytest.raises(ValueError, match=f"it is {name} text: save it as UTF-8"):
        decode(content)
    assert other_encoding(content) == (name if encoding in {"utf-16", "utf-32"} else None)


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize(("content", "line"), [(b"\xe9", 1), (b"a\n\xe9", 2), ("a\nb é\n".encode("latin-1"), 2)])
def test_latin1_is_refused_with_its_line(mark, content, line):
    with pytest.raises(ValueError, match=f"line {line}: it is not UTF-8 text, but maybe Latin-1"):
        decode(mark + content)
