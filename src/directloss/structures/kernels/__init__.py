"""The numba kernels of the structures, one a file. They release the GIL, and are compiled at their first use."""
