# mxkern/torch/recipes: what all layers share: the recipe that counts, its operands.
