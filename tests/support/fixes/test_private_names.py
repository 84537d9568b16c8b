"""Every private name of another library that the package uses has a reason and a canary."""

import pytest

from tests.support.fixes.test_faults import ROOT
from tests.test_house import foreign_names_of_the_package

pytestmark = pytest.mark.without_backend

PRIVATE_NAMES = {
    "Module._forward_hooks": (
        "keras_vit/layers/torch_block.py",
        "a block with hooks is computed part by part",
        "tests/layers/test_users_parts.py::test_torch_forward_hooks_change_the_outputs",
    ),
    "Module._forward_pre_hooks": (
        "keras_vit/layers/torch_block.py",
        "a block with hooks is computed part by part",
        "tests/layers/test_users_parts.py::test_torch_forward_hooks_change_the_outputs",
    ),
    "Module._compiled_call_impl": (
        "keras_vit/layers/torch_block.py",
        "a part that torch compiled is called",
        "tests/layers/test_users_parts.py::test_a_part_that_torch_compiled_is_called",
    ),
    "torch.nn.modules.module._has_any_global_hook": (
        "keras_vit/layers/torch_block.py",
        "no public function says whether hooks for all modules exist",
        "tests/layers/test_users_parts.py::test_torch_global_and_backward_hooks_are_called",
    ),
    "torch.ops.mkldnn._linear_pointwise": (
        "keras_vit/kernels/torch_products.py",
        "torch has no public float32 product by oneDNN",
        "tests/kernels/test_torch_products.py::test_canary_torch_has_the_operation_of_onednn",
    ),
    "torch.ops.mkldnn._reorder_linear_weight": (
        "keras_vit/kernels/torch_products.py",
        "torch has no public way to keep a weight in oneDNN's order",
        "tests/kernels/test_torch_products.py::test_canary_torch_rearranges_weights",
    ),
    "Operation._schema": (
        "keras_vit/kernels/torch_products.py",
        "the operation is called only with the arguments that it had",
        "tests/kernels/test_torch_products.py::test_canary_torch_has_the_operation_of_onednn",
    ),
    "torch._C._are_functorch_transforms_active": (
        "keras_vit/kernels/torch_products.py",
        "no public function says whether `torch.func` transforms",
        "tests/kernels/test_torch_products.py::test_canary_torch_says_whether_a_transform_is_active",
    ),
    "forward_ad._current_level": (
        "keras_vit/kernels/torch_products.py",
        "no public function says whether forward mode is active",
        "tests/models/test_torch_compile.py::test_compiled_transformations_of_torch_give_the_numbers_of_torch",
    ),
}
"""Private name -> file that uses it, the reason, and the test that fails when the name is gone."""


def test_the_table_has_a_row_for_every_private_name_and_no_other():
    """Names that keras_vit itself defines need no row."""
    private = {part for name in PRIVATE_NAMES for part in name.split(".") if part.startswith("_")}
    assert foreign_names_of_the_package() == private


@pytest.mark.parametrize("name", PRIVATE_NAMES)
def test_a_row_of_the_table_names_an_existing_use_and_canary(name):
    where, reason, canary = PRIVATE_NAMES[name]
    assert name.split(".")[-1] in (ROOT / where).read_text()
    assert reason
    file, test = canary.split("::")
    assert f"def {test}(" in (ROOT / file).read_text()
