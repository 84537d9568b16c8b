"""Workarounds for bugs of Keras, TensorFlow, PyTorch and XLA, one module or function per bug.

Each bug has a canary test, `test_canary_...`, which fails when the bug is fixed, so that the
workaround can be removed; the test is also the bug report. Each module states the symptom, the
workaround, and under "Private names" the private names of other libraries that it uses.
"""
