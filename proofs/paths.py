"""Where the checkout is, and where the tools and servers that make targets fetch are installed."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TOOLS: Final = ROOT / ".tools"
