"""`efo kcl`: the files that it reads."""

import pytest

from efo.errors import ConfigurationError
from efo_service.commands.kcl import _read


@pytest.mark.parametrize(
    "content",
    ["executableName = caf\u00e9".encode(), b"\xef\xbb\xbfexecutableName = caf\xc3\xa9", b"executableName = caf\xe9"],
    ids=["UTF-8", "with a mark", "Latin-1, as Java reads it"],
)
def test_a_file_is_read_in_the_encodings_that_its_writers_use(tmp_path, content):
    (tmp_path / "app.properties").write_bytes(content)
    assert _read(tmp_path / "app.properties") == "executableName = caf\u00e9"


def test_a_file_of_windows_notepad_is_named(tmp_path):
    (tmp_path / "app.properties").write_bytes("executableName = app".encode("utf-16"))
    with pytest.raises(ConfigurationError, match=r"app\.properties: it is UTF-16 text: save it as UTF-8"):
        _read(tmp_path / "app.properties")
