"""The public names of the room and their homes, for type checkers and for `lazy_loader`."""

from .numerics import Numerics as Numerics
from .rope import Rope as Rope
from .stem import ResNetStem as ResNetStem
from .vit import ImageSize as ImageSize
from .vit import ViTConfig as ViTConfig
from .vit_rules import Task as Task
