"""The processor decides how torch multiplies, and the doctor tells what it does to the speed."""

import importlib
import re

import pytest

from keras_vit.errors import ConfigError
from keras_vit.support import components
from keras_vit.support.processor import Processor, choose_products

processor = importlib.import_module("keras_vit.support.processor")
pytestmark = pytest.mark.without_backend


@pytest.mark.parametrize(
    ("vendor", "flags", "choice"),
    [
        ("AuthenticAMD", {"avx2", "avx512f", "avx512_bf16"}, "onednn"),
        ("AuthenticAMD", {"avx2"}, "torch"),
        ("GenuineIntel", {"avx2", "avx512f", "amx_bf16"}, "gelu"),
        ("", set(), "torch"),
    ],
)
def test_the_rule_depends_on_the_processor_alone(vendor, flags, choice, monkeypatch):
    """The setting comes before the rule, and `auto` is the rule."""
    found = Processor("x", vendor, frozenset(flags))
    monkeypatch.delenv("KERAS_VIT_PRODUCTS", raising=False)
    assert choose_products(found)[0] == choice
    for asked in ("auto", "torch", "gelu", "onednn"):
        monkeypatch.setenv("KERAS_VIT_PRODUCTS", asked)
        assert choose_products(found)[0] == (choice if asked == "auto" else asked)
    monkeypatch.setenv("KERAS_VIT_PRODUCTS", "mkl")
    with pytest.raises(ConfigError, match="expected auto, onednn, gelu, torch"):
        choose_products(found)


def test_vendor_and_instruction_sets_are_read_from_the_system(monkeypatch, tmp_path):
    """Of Linux; another system tells no vendor, and the rule then leaves torch's choice."""
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "_CPUINFO", file)
    assert processor.processor.__wrapped__().vendor == ""
    file.write_text("vendor_id\t: AuthenticAMD\nmodel name\t: EPYC\nflags\t: avx512f avx2 sse\n")
    found = processor.processor.__wrapped__()
    assert (found.vendor, found.name) == ("AuthenticAMD", "EPYC")
    assert found.instruction_sets == ("avx2", "avx512f")


@pytest.mark.parametrize(
    ("component", "flags", "words"),
    [
        ("instructions", {"avx512f"}, "slower than float32"),
        ("instructions", {"amx_bf16", "avx512_bf16"}, "three times.*mixed_bfloat16"),
        ("instructions", (), "^$"),
        ("tensorflow", {"avx2"}, "export TF_ENABLE_ONEDNN_OPTS=1"),
        ("tensorflow", {"avx2", "avx512_vnni"}, "(?s)^(?!.*TF_ENABLE_ONEDNN_OPTS)"),
    ],
)
def test_the_doctor_tells_what_the_processor_does_to_the_speed(
    component, flags, words, monkeypatch
):
    """Of bfloat16, and where TensorFlow leaves oneDNN off."""
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    monkeypatch.setattr(components, "processor", lambda: Processor("x", "", frozenset(flags)))
    monkeypatch.setattr(components, "_version", lambda name: "2.21.0")
    (row,) = (row for row in components.components() if row.name == component)
    assert re.search(words, row.note)
