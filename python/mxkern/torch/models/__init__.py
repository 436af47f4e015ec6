# mxkern/torch/models: whole models, made of layers of a recipe or a scheme.
