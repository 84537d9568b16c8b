"""The processor: vendor and instruction sets, and which library computes torch's products on it."""

import dataclasses
import functools
import os
import platform
from pathlib import Path

from keras_vit.errors import ConfigError

_TOLD = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8")
_CPUINFO = Path("/proc/cpuinfo")

PRODUCTS = ("auto", "onednn", "torch")
"""Values of the environment variable `KERAS_VIT_PRODUCTS`."""


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
        return tuple(name for name in _TOLD if name in self.flags)


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


def products_of_torch(found: Processor | None = None) -> tuple[str, str]:
    """Returns the library of torch's matrix products on CPUs, `"onednn"` or `"torch"`, and why.

    The rule: oneDNN on AMD processors with AVX-512, where MKL, torch's own library, takes a slow
    path: half the speed of oneDNN on an EPYC. On all other processors torch decides. The rule
    depends on the processor alone, so that a machine gives the same numbers every time.
    `KERAS_VIT_PRODUCTS` names a library (`onednn`, `torch`) or `auto` for the rule.

    Raises:
        ConfigError: the environment variable has another value.
    """
    asked = os.environ.get("KERAS_VIT_PRODUCTS") or "auto"
    if asked not in PRODUCTS:
        raise ConfigError(
            f"The environment variable KERAS_VIT_PRODUCTS is {asked!r}; expected "
            f"{', '.join(PRODUCTS)}."
        )
    if asked != "auto":
        return asked, "KERAS_VIT_PRODUCTS"
    found = found or processor()
    if found.vendor == "AuthenticAMD" and "avx512f" in found.flags:
        return "onednn", "an AMD processor with AVX-512; KERAS_VIT_PRODUCTS=torch for MKL"
    return "torch", "no AMD processor with AVX-512; KERAS_VIT_PRODUCTS=onednn for oneDNN"
