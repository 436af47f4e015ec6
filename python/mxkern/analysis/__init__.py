# mxkern/analysis: what quantization does to values: errors of every scheme, tables and pictures.
"""The error of schemes on tensors and on the files of a model.

print(mxkern.compare(x))                                # mxkern.analysis.compare
print(mxkern.analyze(x, "mxfp4"))                       # mxkern.analysis.analyze
mxkern.analysis.compare_file("model.safetensors")       # what `mxkern compare` does
"""

from mxkern.analysis.analyze import Analysis, analyze
from mxkern.analysis.comparison import CompareRecord, Comparison, compare
from mxkern.analysis.file_comparison import compare_file

__all__ = ["Analysis", "CompareRecord", "Comparison", "analyze", "compare", "compare_file"]
