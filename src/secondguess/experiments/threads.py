"""One thread: with more, sums are split another way, and a seed gives other bits.

Nothing heavy is imported at the top: the command line reads the variables when it starts processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "OMP_DYNAMIC": "false",
    "MKL_DYNAMIC": "false",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Variables that linear algebra libraries read when they are loaded, and never again."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch and the linear algebra of NumPy and SciPy use one thread.

    >>> import torch
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    import torch
    from threadpoolctl import threadpool_limits

    num_threads = torch.get_num_threads()
    with threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(num_threads)
