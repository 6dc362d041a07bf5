"""The path of the checkout, for tests that read its files."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
