# bench/compare/__init__.py: the same work done by other libraries, each in a process of its own.
