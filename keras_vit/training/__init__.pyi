"""The public names of the room and their homes, for type checkers and for `lazy_loader`."""

from .lora import enable_lora as enable_lora
from .lora import merge_lora as merge_lora
from .optimizers import LayerwiseAdamW as LayerwiseAdamW
from .optimizers import LayerwiseSGD as LayerwiseSGD
from .recipes import AugregRecipe as AugregRecipe
from .recipes import PretrainRecipe as PretrainRecipe
from .recipes import Recipe as Recipe
from .recipes import TransferRecipe as TransferRecipe
from .recipes import steps_for as steps_for
from .resume import Resume as Resume
from .schedules import LinearDecay as LinearDecay
from .schedules import PerUpdate as PerUpdate
from .self_supervised import SelfSupervised as SelfSupervised
from .trainable import layer_decay_multipliers as layer_decay_multipliers
from .trainable import train_head as train_head
from .trainable import train_last_blocks as train_last_blocks
from .trainable import train_only as train_only
from .trainable import zero_head as zero_head
from .training import TrainingResult as TrainingResult
from .training import train as train
