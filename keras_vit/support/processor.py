"""The processor, and the library that computes torch's matrix products on it."""

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
    """A processor.

    Args:
        name: the vendor's name of the model.
        vendor: `"GenuineIntel"`, `"AuthenticAMD"` or another identifier; `""` if it is unknown.
        flags: the features that the operating system lists; empty if it lists none.
    """

    name: str
    vendor: str
    flags: frozenset[str]

    @property
    def instruction_sets(self) -> tuple[str, ...]:
        """The vector and matrix instructions that decide the speed of a product."""
        return tuple(name for name in _INSTRUCTION_SETS if name in self.flags)

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether an instruction multiplies bfloat16; others convert to float32 and back."""
        return not self.flags.isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})


@functools.cache
def processor() -> Processor:
    """Returns the processor of this machine; only Linux tells vendor and flags."""
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
    """Returns the matrix products that oneDNN computes for torch on CPUs, and the reason.

    - `"onednn"`: all products of the blocks, in inference those of attention too. This is the rule
      on AMD processors with AVX-512, where MKL, torch's own library, takes a slow path: half the
      speed of oneDNN on an EPYC.
    - `"gelu"`: in inference the products that a GELU follows, with the GELU in the same pass, of
      kernels of at most 2^20 numbers: hidden sizes up to 512. This is the rule on other processors
      with AVX-512: oneDNN and MKL have the same speed for these on a Xeon, but torch computes the
      GELU in a separate pass.
    - `"torch"`: none, the rule on all other processors.

    Under the first two, oneDNN also computes the products of the blocks for the inference function
    in bfloat16, where the processor multiplies it.

    The rule depends on the processor alone, so that a machine gives the same numbers every time.
    `KERAS_VIT_PRODUCTS` names one of the three, or `auto` for the rule.

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
