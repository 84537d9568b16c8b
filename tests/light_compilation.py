"""XLA on CPUs without its fusion emitters, which take two fifths of the time of a compilation.

Most programs of the suite are compiled for one small array. Tests that ask for `full_compilation`
and `make test-thorough` compile as users do.
"""

import functools
from typing import Any

from tests.runs import THOROUGH

FLAG = "--xla_cpu_use_fusion_emitters=" + ("true" if THOROUGH else "false")
"""For XLA_FLAGS of a process that mostly compiles."""


def switch_on() -> None:
    """Compiles without fusion emitters where JAX is told to disable most optimisations."""
    from jax._src import compiler  # XLA_FLAGS holds for a process; no public name holds for less

    original = compiler.get_compile_options

    @functools.wraps(original)
    def make_options(*args: Any, **arguments: Any) -> Any:
        if compiler._DISABLE_MOST_OPTIMIZATIONS.value:
            flags = arguments.get("env_options_overrides") or {}
            arguments["env_options_overrides"] = {"xla_cpu_use_fusion_emitters": False, **flags}
        return original(*args, **arguments)

    if not THOROUGH:
        compiler.get_compile_options = make_options
