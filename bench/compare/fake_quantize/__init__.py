# bench/compare/fake_quantize/__init__.py: rounding to a scheme and back by other libraries.
