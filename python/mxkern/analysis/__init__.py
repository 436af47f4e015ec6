# mxkern/analysis: what quantization does to values: errors of every scheme, tables and pictures.
"""The error of schemes on tensors and on the files of a model.

print(mxkern.compare(x))                                # mxkern.analysis.compare
print(mxkern.analyze(x, "mxfp4"))                       # mxkern.analysis.analyze
found = mxkern.analysis.compare_tensors("model.safetensors")
print(found.advice(sqnr_db=25))                         # the narrowest scheme of each tensor
mxkern.analysis.save_plot(found, "error.png")
mxkern.analysis.compare_file("model.safetensors")       # what `mxkern compare` does
"""

from mxkern.analysis.advice import Advice, AdviceRecord
from mxkern.analysis.comparison import CompareRecord, Comparison, compare
from mxkern.analysis.file_comparison import compare_file, compare_tensors
from mxkern.analysis.model_comparison import ModelComparison
from mxkern.analysis.plot import save_plot
from mxkern.analysis.tensor_analysis import Analysis, analyze

__all__ = [
    "Advice",
    "AdviceRecord",
    "Analysis",
    "CompareRecord",
    "Comparison",
    "ModelComparison",
    "analyze",
    "compare",
    "compare_file",
    "compare_tensors",
    "save_plot",
]
