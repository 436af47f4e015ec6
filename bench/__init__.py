# bench/__init__.py: benchmarks; python -m bench.runner runs them all.
