# bench/compare/gemm/__init__.py: products by other libraries.
