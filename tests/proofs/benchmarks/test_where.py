from proofs.benchmarks.where import lines_of, module_of
from proofs.paths import ROOT


def test_a_file_belongs_to_a_module_of_this_project_to_a_package_or_to_python():
    assert module_of(str(ROOT / "efo" / "tls.py")) == "efo/tls.py"
    assert module_of(str(ROOT / ".venv/lib/python3.11/site-packages/h2/stream.py")) == "h2"
    assert module_of("/usr/lib/python3.11/ssl.py") == "Python"
    assert module_of("<string>") == "Python"


def test_modules_are_listed_by_their_share_with_their_largest_functions():
    tls = str(ROOT / "efo" / "tls.py")
    counts = {f"{tls}:TlsStream._read": 20, "/lib/ssl.py:SSLObject.read": 70, f"{tls}:TlsStream.send_all": 10}
    first, second = lines_of(counts)
    assert first.split() == ["70%", "Python", "SSLObject.read", "70%"]
    assert second.split() == ["30%", "efo/tls.py", "TlsStream._read", "20%,", "TlsStream.send_all", "10%"]


def test_modules_with_less_than_a_hundredth_are_left_out():
    assert len(lines_of({"/lib/ssl.py:a": 999, "/x/site-packages/h2/a.py:b": 1})) == 1
