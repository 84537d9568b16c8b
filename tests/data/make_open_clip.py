"""The place of `weights.test_data.open_clip` for imports of before."""

from weights.test_data.open_clip import CASES, FILE, SIDE

__all__ = ["CASES", "FILE", "SIDE"]
