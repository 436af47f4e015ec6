# mxkern/analysis: what quantization does to values: errors of every scheme, tables and pictures.
"""The error of schemes on tensors and on the files of a model.

print(mxkern.compare(x))                                # mxkern.analysis.compare
mxkern.analysis.compare_file("model.safetensors")       # what `mxkern compare` does
"""

from mxkern.analysis.comparison import CompareRecord, Comparison, compare
from mxkern.analysis.file_comparison import compare_file

__all__ = ["CompareRecord", "Comparison", "compare", "compare_file"]
