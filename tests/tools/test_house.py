"""What must not stand twice in the code."""

from __future__ import annotations

from tools.house import settings_stated_twice


def test_each_setting_is_stated_once():
    assert settings_stated_twice() == []
