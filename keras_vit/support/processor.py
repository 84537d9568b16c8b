"""Describes the processor, and chooses the library for PyTorch's matrix products on it."""

import dataclasses
import functools
import os
import platform
from pathlib import Path

from keras_vit.errors import ConfigError

_INSTRUCTION_SETS = (
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "amx_int8",
)
_CPUINFO = Path("/proc/cpuinfo")

PRODUCTS = ("auto", "onednn", "gelu", "torch")
"""Values of the environment variable `KERAS_VIT_PRODUCTS`; `choose_products` explains them."""


@dataclasses.dataclass(frozen=True)
class Processor:
    """A processor and its instruction sets.

    Args:
        name: the vendor's name of the model.
        vendor: `"GenuineIntel"`, `"AuthenticAMD"` or another identifier; `""` if unknown.
        flags: the features that the operating system lists; empty if unknown.
    """

    name: str
    vendor: str
    flags: frozenset[str]

    @property
    def instruction_sets(self) -> tuple[str, ...]:
        """The vector and matrix instructions that decide the speed of a matrix product."""
        return tuple(name for name in _INSTRUCTION_SETS if name in self.flags)

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether the processor multiplies bfloat16 without a conversion to float32."""
        return not self.flags.isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})


@functools.cache
def processor() -> Processor:
    """Returns the processor of this machine; vendor and flags are known on Linux only."""
    try:
        lines = _CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    fields: dict[str, str] = {}
    for key, colon, value in (line.partition(":") for line in lines):
        if colon:
            fields.setdefault(key.strip(), value.strip())
    # `platform.processor` returns no name on Linux.
    name = fields.get("model name") or platform.processor() or platform.machine()
    flags = fields.get("flags") or fields.get("Features") or ""
    return Processor(name, fields.get("vendor_id", ""), frozenset(flags.split()))


def choose_products(machine: Processor | None = None) -> tuple[str, str]:
    """Chooses the matrix products that oneDNN computes for PyTorch on CPUs.

    - `"onednn"`: all products of the blocks, and in inference those of attention. The default on
      AMD processors with AVX-512, where MKL, torch's own library, takes a slow path: half the
      speed of oneDNN on an EPYC.
    - `"gelu"`: in inference, the products that a GELU follows, with the GELU in the same pass, for
      kernels of at most 2^20 values: hidden sizes up to 512. The default on other processors with
      AVX-512: oneDNN and MKL have the same speed for these on a Xeon, but torch computes the GELU
      in a separate pass.
    - `"torch"`: no products, the default on all other processors.

    With `"onednn"` and `"gelu"`, oneDNN also computes the products of the blocks for the inference
    function in bfloat16, if the processor multiplies it.

    The default depends on the processor alone, so that a machine computes the same outputs every
    time. The environment variable `KERAS_VIT_PRODUCTS` overrides it; `auto` is the default.

    Returns:
        The choice, and the reason for it.

    Raises:
        ConfigError: the environment variable has another value.
    """
    choice = os.environ.get("KERAS_VIT_PRODUCTS") or "auto"
    if choice not in PRODUCTS:
        raise ConfigError(
            f"The environment variable KERAS_VIT_PRODUCTS is {choice!r}; expected "
            f"{', '.join(PRODUCTS)}."
        )
    if choice != "auto":
        return choice, "KERAS_VIT_PRODUCTS"
    machine = machine or processor()
    if "avx512f" not in machine.flags:
        return "torch", "no processor with AVX-512; KERAS_VIT_PRODUCTS=onednn for oneDNN"
    if machine.vendor == "AuthenticAMD":
        return "onednn", "an AMD processor with AVX-512; KERAS_VIT_PRODUCTS=torch for MKL"
    return "gelu", "AVX-512, but not by AMD; KERAS_VIT_PRODUCTS=onednn or torch for one library"
