"""What must not stand twice in the code."""

from __future__ import annotations

from tools.house import class_names_twice, settings_stated_twice


def test_each_setting_is_stated_once():
    assert settings_stated_twice() == []


def test_a_public_class_has_a_name_of_its_own():
    assert class_names_twice() == {}
