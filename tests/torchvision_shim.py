"""Lets timm and transformers, which import torchvision, be imported beside torch's CPU build.

torchvision's compiled operators fit one build of torch. Beside another build, its import fails
in the module that describes the shapes of these operators. Vision Transformers use no such
operator, so the shim leaves that module out.

    from tests import torchvision_shim  # before timm or transformers
"""

import importlib
import sys
import types


def install() -> None:
    """Makes `import torchvision` work; does nothing if it works or torchvision is not installed."""
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:
        return
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        name = "torchvision._meta_registrations"
        sys.modules[name] = types.ModuleType(name)
        importlib.import_module("torchvision")


install()
