# mxkern/values/__init__.py: values that know no arrays and no framework.
