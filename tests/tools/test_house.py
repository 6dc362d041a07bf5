"""What must not stand twice in the code."""

from __future__ import annotations

from tools.handoffs import handoffs
from tools.house import circles, class_names_twice, of_text, settings_stated_twice, sources


def test_each_setting_is_stated_once():
    assert settings_stated_twice() == []


def test_a_public_class_has_a_name_of_its_own():
    assert class_names_twice() == {}


def test_no_siblings_import_each_other():
    assert circles(sources()) == []


def test_a_circle_of_siblings_is_found():
    texts = {
        "efo/a/one.py": "from efo.b import two\n",
        "efo/b/two.py": "from efo.a.one import x\n",
        "efo/b/three.py": "from efo.b import two\n",
    }
    assert of_text(texts)["circles"] == 1


def test_a_class_of_two_modules_is_found():
    texts = {"efo/one.py": "class A: pass\n", "efo/two.py": "class A: pass\n", "efo/aio/two.py": "class A: pass\n"}
    assert of_text(texts) == {"lines": 3, "modules": 3, "median": 1, "circles": 0, "class_names_twice": 1}


def test_a_batch_takes_eight_handoffs_from_the_relay_to_the_file():
    way = handoffs()
    assert way[0][1].endswith("WriteBuffer.write")
    assert way[-1][1].endswith("DiskAppender.append")
    assert len(way) <= 8
