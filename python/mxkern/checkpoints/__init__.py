# mxkern/checkpoints: models on disk: conversion to quantized weights, and readers of safetensors.
"""Checkpoints of models.

mxkern.checkpoints.convert_checkpoint("model", "model-nvfp4", "nvfp4")   # `mxkern convert`
tensors = mxkern.checkpoints.read_safetensors("model/model.safetensors")
"""

from mxkern.checkpoints.conversion import Conversion
from mxkern.checkpoints.convert import convert_checkpoint
from mxkern.files.safetensors import SafetensorsFile, read_safetensors
from mxkern.files.safetensors_index import read_safetensors_index

__all__ = [
    "Conversion",
    "SafetensorsFile",
    "convert_checkpoint",
    "read_safetensors",
    "read_safetensors_index",
]
