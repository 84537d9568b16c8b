"""The public names of keras_vit and their homes, for type checkers and for `lazy_loader`."""

from . import checkpoints as checkpoints
from . import data as data
from . import distribution as distribution
from . import errors as errors
from . import evaluation as evaluation
from . import explanation as explanation
from . import exporting as exporting
from . import images as images
from . import layers as layers
from . import models as models
from . import ray as ray
from . import serving as serving
from . import training as training
from .checkpoints.inspection import info as info
from .checkpoints.transfer import convert as convert
from .checkpoints.verification import verify as verify
from .errors import KerasViTError as KerasViTError
from .evaluation.embedding import embed as embed
from .evaluation.probing import probe as probe
from .evaluation.scores import evaluate as evaluate
from .explanation.maps import explain as explain
from .exporting.writing import export as export
from .images.preprocessor import Preprocessor as Preprocessor
from .models.builders import list_variants as list_variants
from .models.builders import r26_vit_b32 as r26_vit_b32
from .models.builders import r26_vit_s32 as r26_vit_s32
from .models.builders import r50_vit_b16 as r50_vit_b16
from .models.builders import r50_vit_l32 as r50_vit_l32
from .models.builders import r_vit_ti16 as r_vit_ti16
from .models.builders import vit_b8 as vit_b8
from .models.builders import vit_b16 as vit_b16
from .models.builders import vit_b32 as vit_b32
from .models.builders import vit_h14 as vit_h14
from .models.builders import vit_l16 as vit_l16
from .models.builders import vit_l32 as vit_l32
from .models.builders import vit_s16 as vit_s16
from .models.builders import vit_s32 as vit_s32
from .models.builders import vit_ti16 as vit_ti16
from .models.config import ViTConfig as ViTConfig
from .models.vision_transformer import VisionTransformer as VisionTransformer
from .presets.catalog import list_presets as list_presets
from .presets.upload import upload_preset as upload_preset
from .serving import serve as serve
from .training.finetuning import finetune as finetune

__version__: str
