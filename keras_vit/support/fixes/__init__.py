"""Workarounds for faults of Keras, TensorFlow, torch and XLA, one module or function per fault.

Each fault has a canary in `tests`, `test_canary_...`, which fails when the fault is gone, so that
the workaround can be removed; its body and docstring are the report of the fault. Each module
states the symptom, the workaround, and under "Leans on" the private names that it uses.
"""
