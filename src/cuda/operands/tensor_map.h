// cuda/operands/tensor_map.h: descriptions of tensors for the copy engine of compute capability 9.0
// and up.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/runtime/driver.h"
#include "cuda/operands/row_scaled.h"

namespace mxkern::cuda {

inline auto tensor_map_encoder(const char* function) {
  static const auto encoder =
      driver_function<decltype(&cuTensorMapEncodeTiled)>(function, "cuTensorMapEncodeTiled");
  return encoder;
}

// A tensor of up to four dimensions, innermost first, and the box that one copy moves.
struct TensorMapShape {
  CUtensorMapDataType type;
  const void* data;
  std::int64_t sizes[4];
  std::int64_t strides[3];  // bytes, of dimensions 1 to 3
  int box[2];               // of dimensions 0 and 1; 1 in the others
};

// Boxes have rows of 128 or of 64 bytes and lie in shared memory with the swizzle of that many;
// what is outside the tensor reads as zero.
inline CUtensorMap encode_tensor_map(const char* function, const TensorMapShape& shape,
                                     int box_row_bytes = 128) {
  CUtensorMap map;
  cuuint64_t sizes[4], strides[3];
  cuuint32_t box[4] = {1, 1, 1, 1}, element_strides[4] = {1, 1, 1, 1};
  for (int i = 0; i < 4; ++i) {
    sizes[i] = static_cast<cuuint64_t>(shape.sizes[i] > 0 ? shape.sizes[i] : 1);
    if (i < 2) box[i] = static_cast<cuuint32_t>(shape.box[i]);
    if (i < 3) strides[i] = static_cast<cuuint64_t>(shape.sizes[i + 1] > 1 ? shape.strides[i] : 16);
  }
  const CUresult result = tensor_map_encoder(function)(
      &map, shape.type, 4, const_cast<void*>(shape.data), sizes, strides, box, element_strides,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      box_row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check<Unsupported>(result == CUDA_SUCCESS, function, ": cuTensorMapEncodeTiled failed with ",
                     static_cast<int>(result), " for ", shape.sizes[0], " x ", shape.sizes[1],
                     " x ", shape.sizes[2], " x ", shape.sizes[3],
                     "; expected addresses and strides that are multiples of 16 bytes");
  return map;
}

// Boxes of `rows` rows and 128 or 64 bytes of K: dimensions K, row, part, matrix.
inline CUtensorMap map_operand(const char* function, const RowScaled& x, int rows,
                               int box_row_bytes = 128) {
  const bool wide = x.element == CoreElement::bfloat16;
  return encode_tensor_map(function,
                           {wide ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8,
                            x.data,
                            {x.columns, x.rows, x.parts, x.batch},
                            {x.row_bytes, x.part_bytes, x.batch_bytes},
                            {box_row_bytes / bytes_of(x.element), rows}},
                           box_row_bytes);
}

// Boxes of `rows` rows and 128 bytes of an output.
inline CUtensorMap map_output(const char* function, const Buffer& out, int rows) {
  const auto size = static_cast<std::int64_t>(size_of(out.dtype));
  const bool wide = out.dtype == DType::float32;
  return encode_tensor_map(function,
                           {wide ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16,
                            out.data,
                            {out.shape.columns, out.shape.rows, out.shape.batch, 1},
                            {out.row_stride * size, out.batch_stride * size, 16},
                            {static_cast<int>(128 / size), rows}});
}

}  // namespace mxkern::cuda
