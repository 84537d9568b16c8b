"""The public names of the room and their homes, for type checkers and for `lazy_loader`."""

from .config import Numerics as Numerics
from .config import ResNetStem as ResNetStem
from .config import Rope as Rope
from .costs import flops as flops
