"""The public names of keras_vit.config, for type checkers and for `lazy_loader`."""

from .block import Block as Block
from .dense import DenseHead as DenseHead
from .pool import Pool as Pool
from .prediction import Prediction as Prediction
from .prediction import Task as Task
from .rotary import Rope as Rope
from .stem import Stem as Stem
from .tokens import LearnedTokens as LearnedTokens
from .vit import ImageSize as ImageSize
from .vit import ViTConfig as ViTConfig
