# mxkern/torch/__init__.py: mxkern inside PyTorch.
"""mxkern's functions as operators of PyTorch.

    import mxkern.torch          # from here on torch.compile knows mxkern's functions

    @torch.compile(fullgraph=True)
    def layer(x, w):
        return mxkern.gemm(mxkern.quantize(x, "mxfp8"), w, dtype=x.dtype) + 1

The functions of mxkern.torch.operators have the names and arguments of mxkern's, and torch.compile
takes them in their place.
"""

from mxkern.torch.operators import *  # noqa: F403
from mxkern.torch.operators import __all__ as __all__
