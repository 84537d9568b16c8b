"""Each line of docs/coming_from.md that translates an output, beside the other library."""

import re

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.models.tokens import Tokens
from tests.checkpoints.cases import SMALL, VISION
from tests.checkpoints.references import save_timm
from tests.golden import DATA, FOLDER, relative_error
from tests.helpers import to_numpy
from tests.live import channels_first, random_transformers, timm, torch

pytestmark = pytest.mark.usefixtures("offline")

PAGE = (DATA.parents[1] / "docs/coming_from.md").read_text(encoding="utf-8")
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), "uint8")
CLASSES = {"ViTModel": {}, "SiglipVisionModel": {}, "CLIPVisionModel": {}}
CLASSES |= {"Dinov2WithRegistersModel": {"num_register_tokens": 2}}
SIZES = {**SMALL, "img_size": 16, "depth": 3, "embed_dim": 192, "num_classes": 3}


def translations(library):
    """The lines of a library's table: its calls, and the call of keras_vit."""
    section = re.search(rf"^## {library}.*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL)[0]
    rows = re.findall(r"^\| (.*) \| `((?:model\.tokens|keras_vit\.e)\S*\(.*?)`", section, re.M)
    return [(re.findall("`(.*?)`", left), right) for left, right in rows]


def joined(value):
    """Tokens of every kind beside each other; the patches in one row."""
    if isinstance(value, Tokens):
        return np.concatenate([joined(part) for part in value if part is not None], axis=1)
    value = to_numpy(value)
    return value.reshape(2, -1, value.shape[-1])


def check(theirs, ours, model, names):
    """Compares two lines of the page, for a block in the middle."""
    places = {"keras_vit": keras_vit, "images": IMAGES, "k": 1}
    found = joined(eval(ours, {**places, "model": model}))
    with torch.no_grad():
        assert relative_error(found, joined(eval(theirs, {**places, **names}))) <= 1e-5


def list_calls():
    """The class, their call and ours; a line that names no class is true of all but CLIP's."""
    for (theirs, *named), ours in translations("transformers"):
        others = [name for name in CLASSES if "last" not in theirs or name != "CLIPVisionModel"]
        yield from ((name, theirs, ours) for name in named or others)


@pytest.mark.parametrize(("name", "theirs", "ours"), list_calls())
def test_outputs_of_transformers(name, theirs, ours, tmp_path):
    sizes = {**VISION, "num_hidden_layers": 3, "attn_implementation": "eager"}
    network = random_transformers(name, **sizes, **CLASSES[name])
    network.save_pretrained(tmp_path)
    model = VisionTransformer.from_preset(tmp_path, image_size=16)
    with torch.no_grad():
        x = channels_first(model.preprocessor(IMAGES))
        outputs = network(x, output_hidden_states=True, output_attentions=True)
    check(theirs, ours, model, {"outputs": outputs})


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_small_patch14_reg4_dinov2"])
@pytest.mark.parametrize(("calls", "ours"), translations("timm"))
def test_outputs_of_timm(calls, ours, name, tmp_path):
    network = save_timm(name, tmp_path, **SIZES)

    def create_model(name, **further):
        other = timm.create_model(name, **{**SIZES, **further}).eval()
        inner = getattr(other, "model", other)
        assert not inner.load_state_dict(network.state_dict(), strict=False).missing_keys
        return other

    model = VisionTransformer.from_preset(tmp_path)
    names = {"model": network, "create_model": create_model, "name": name}
    names["x"] = channels_first(model.preprocessor(IMAGES))
    names["last"] = lambda value: value.movedim(1, -1) if value.ndim == 4 else value
    for theirs in calls:
        check(f"last({theirs})", ours, model, names)  # maps of timm have the channels first


@pytest.mark.parametrize(("calls", "ours"), translations("keras-hub"))
def test_outputs_of_keras_hub(calls, ours):
    keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)
    name = str(FOLDER / "kh_classifier")
    model = VisionTransformer.from_preset(name)
    names = {"Backbone": keras_hub.models.Backbone, "name": name}
    check(calls[0], ours, model, {**names, "x": model.preprocessor(IMAGES)})


def test_the_page_has_these_lines():
    """So that no line escapes the tests above by its form."""
    counts = {name: len(translations(name)) for name in ("transformers", "keras-hub", "timm")}
    assert counts == {"transformers": 6, "keras-hub": 1, "timm": 5}
