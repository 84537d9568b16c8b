"""Stacks of float32 matrices by oneDNN; see keras_vit/support/fixes/torch_stacks.py."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from keras_vit import kernels
from keras_vit.kernels import reference, torch_products
from keras_vit.support.fixes import torch_stacks
from keras_vit.support.processor import Processor
from tests.helpers import assert_close, random_tiny, to_numpy
from tests.plain import normal

SETTING = torch.backends.mkldnn.matmul


@pytest.fixture
def attends(monkeypatch):
    """oneDNN attends, to few tokens too, a few scores at a time; returns the settings it saw."""
    if not torch_stacks.are_float32():
        pytest.skip("oneDNN computes float32 in bfloat16 here, or this processor has no AVX-512")
    seen, bmm = [], torch.bmm
    monkeypatch.setattr(torch_products, "_attends", True)
    monkeypatch.setattr(torch_products, "_FEWEST_SCORES", 1)
    monkeypatch.setattr(torch_products, "_MOST_SCORES", 40)

    def watched(*arguments, **named):
        seen.append(SETTING.fp32_precision)
        return bmm(*arguments, **named)

    monkeypatch.setattr(torch, "bmm", watched)
    return seen


def inputs(batch=2, tokens=7, others=9):
    return [torch.from_numpy(normal(batch, n, 3, 4, seed=n)) for n in (tokens, others, others)]


@pytest.mark.parametrize(("tokens", "others"), [(1, 9), (7, 7), (3, 50), (13, 5)])
def test_attention_in_pieces_equals_the_reference(tokens, others, attends):
    """Pieces of several heads, and of some rows of one head, and the last of either."""
    arrays = inputs(tokens=tokens, others=others)
    biases = [normal(*shape) for shape in ((1, 3, tokens, others), (2, 1, 1, others))]
    for bias in (None, *map(torch.from_numpy, biases)):
        expected = to_numpy(reference.attention(*arrays, bias))
        assert_close(to_numpy(kernels.attention(*arrays, bias)), expected, 1e-6)
    assert set(attends) == {"bf16"}


@pytest.mark.parametrize("setting", ["none", "bf16", "ieee", "tf32"])
def test_the_setting_of_the_program_stays(setting, attends, monkeypatch):
    """A program that has chosen a precision gets torch's attention; also after a failure."""
    before = SETTING.fp32_precision
    try:
        SETTING.fp32_precision = setting
        kernels.attention(*inputs())
        assert SETTING.fp32_precision == setting
        assert bool(attends) == (setting in ("none", "bf16"))
        monkeypatch.setattr(torch, "baddbmm", lambda *arguments, **named: 1 / 0)
        if attends:
            with pytest.raises(ZeroDivisionError):
                kernels.attention(*inputs())
        assert SETTING.fp32_precision == setting
    finally:
        SETTING.fp32_precision = before


def test_threads_and_forks_find_the_setting_of_the_program(attends):
    """One thread at a time has another setting, and no process is forked meanwhile."""
    model, before, images = random_tiny(), SETTING.fp32_precision, normal(2, 16, 16, 3)
    expected, children = model.predict_on_batch(images), []
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(model.predict_on_batch, images) for _ in range(8)]
        while not all(answer.done() for answer in answers) and len(children) < 20:
            child = os.fork()
            if not child:
                os._exit(SETTING.fp32_precision != before)
            children.append(child)
    for answer in answers:
        assert_close(answer.result(), expected)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    assert SETTING.fp32_precision == before


def test_gradients_and_other_types_are_left_to_torch(attends):
    """Float64, bfloat16, a tensor that needs a gradient, a tangent of one argument."""
    for dtype in (torch.float64, torch.bfloat16):
        kernels.attention(*(x.to(dtype) for x in inputs()))
    query, key, value = inputs()
    kernels.attention(query, key, value.requires_grad_()).sum().backward()
    bias = torch.zeros(1, 1, 1, 9, requires_grad=True)
    kernels.attention(*inputs(), bias).sum().backward()
    query, key, value = inputs()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(key, torch.ones_like(key))
        # torch's fused attention has no forward derivative
        with contextlib.suppress(NotImplementedError):
            y = kernels.attention(query, dual, value)
            assert torch.autograd.forward_ad.unpack_dual(y).tangent is not None
    assert not attends


def test_the_processor_decides_whether_stacks_are_float32(monkeypatch):
    """oneDNN takes the permission to compute in bfloat16 where AMX makes that quick."""
    for flags, expected in (("avx512f", True), ("avx512f amx_bf16", False), ("avx2", False)):
        found = Processor("x", "y", frozenset(flags.split()))
        monkeypatch.setattr(torch_stacks, "processor", lambda found=found: found)
        assert torch_stacks.are_float32() == expected
    monkeypatch.setattr(torch_stacks, "_SETTING", None)  # a torch before 2.9
    assert not torch_stacks.are_float32()


def test_canary_onednn_computes_stacks_in_float32():
    """Fails when oneDNN takes bfloat16 without AMX, too: then it may not be used."""
    if not torch_stacks.are_float32():
        pytest.skip("no AVX-512, or AMX")
    x, y = (torch.from_numpy(normal(8, 197, 197, seed=k)) for k in (0, 1))
    with torch_stacks.by_onednn() as is_onednn:
        assert is_onednn
        found = torch.bmm(x, y)
    assert_close(to_numpy(found), to_numpy(torch.bmm(x.double(), y.double())), 1e-6)


def test_canary_torch_has_no_operation_for_stacks():
    """Fails when torch has one: it needs no setting then.

    torch multiplies stacks of float32 matrices by MKL, slowly on processors of AMD. Only
    `torch.backends.mkldnn.matmul.fp32_precision = "bf16"` leads to oneDNN, a permission of the
    whole process to compute in bfloat16, which oneDNN does not use without AMX.

    Expected: `torch.bmm` takes the time of the faster library, because both compute in float32.
    Found: on an EPYC with AVX-512 the setting halves the time, with an error of the same size.
    Remedy: choose oneDNN for float32 on these processors, or take a precision per call.
    """
    names = [name.lower() for name in torch._C._dispatch_get_all_op_names()]
    ours = [name for name in names if name.startswith(("mkldnn::", "onednn::"))]
    assert any("linear_pointwise" in name for name in ours)
    words = ("bmm", "batch_mat", "matmul", "attention", "sdp")
    assert not [name for name in ours if any(word in name for word in words)]
