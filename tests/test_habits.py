"""Names of other libraries are answered with the line that does it here."""

import pytest

import keras_vit
from keras_vit.errors import SourceError
from keras_vit.habits import HABITS
from keras_vit.sources.catalog import preset_named

pytestmark = pytest.mark.without_backend


@pytest.mark.parametrize("name", HABITS)
def test_a_name_of_another_library_is_answered_with_a_line(name):
    with pytest.raises(AttributeError, match=f"has no attribute {name!r}\\. .*\\.$"):
        getattr(keras_vit, name)
    assert not hasattr(keras_vit, name)


def test_an_unknown_name_has_pythons_own_message():
    with pytest.raises(AttributeError, match=r"module 'keras_vit' has no attribute 'x'\.$"):
        keras_vit.x  # noqa: B018


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("google/vit-base-patch16-224", "hf://google/vit-base-patch16-224"),
        (
            "vit_base_patch16_224.augreg_in21k_ft_in1k",
            "hf://timm/vit_base_patch16_224.augreg_in21k_ft_in1k",
        ),
    ],
)
def test_a_name_on_the_hub_is_answered_with_its_address(name, address):
    with pytest.raises(SourceError, match=f"For the repository of the Hub write '{address}'"):
        preset_named(name)
