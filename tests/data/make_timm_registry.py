"""The place of `weights.make_timm_registry` for imports of before."""

from weights.make_timm_registry import FILE, registry

__all__ = ["FILE", "registry"]
