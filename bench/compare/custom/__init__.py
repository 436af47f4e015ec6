# bench/compare/custom/__init__.py: formats and schemes of the user's own by other libraries.
