// cuda/gemm/epilogue.h: what a function's arguments ask of the end of a product.
#pragma once

#include "cuda/operands/row_scaled.h"
#include "mxkern/core/buffer.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cuda {

// Where the operand has one, on the device. Null: of a plain operand.
inline const float* tensor_scale_of(const BlockScaled* q) {
  return q != nullptr && facts_of(q->scheme).has_tensor_scale ? q->tensor_scale : nullptr;
}

inline CoreFinish core_finish(float alpha, const BlockScaled* left, const BlockScaled* right,
                              const Buffer* bias, const Buffer& out) {
  CoreFinish finish;
  finish.alpha = alpha;
  finish.left_tensor_scale = tensor_scale_of(left);
  finish.right_tensor_scale = tensor_scale_of(right);
  if (bias != nullptr) {
    finish.bias = bias->data;
    finish.bias_dtype = bias->dtype;
  }
  finish.out = out;
  return finish;
}

}  // namespace mxkern::cuda
