# bench/compare/quantize/__init__.py: quantization by other libraries.
