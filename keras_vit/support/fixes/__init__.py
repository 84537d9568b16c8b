"""Workarounds for faults of Keras, TensorFlow, torch and XLA, one module or function per fault.

`faults.py` is the table of the faults: library, releases, workaround and canary. A canary is a test
that fails when the fault is gone, so that the workaround can be removed; its body and docstring are
the report of the fault. Each module states the symptom, the workaround, and under "Leans on" the
private names that the workaround uses; `tests/support/fixes/test_private_names.py` lists them.
"""
