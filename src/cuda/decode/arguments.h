// cuda/decode/arguments.h: what products of few tokens are given, in the form that kernels take.
#pragma once

#include "cuda/runtime/launch.h"
#include "cuda/decode/multiply.h"
#include "cuda/operands/tensor_map.h"
#include "mxkern/kernels/decode/copy_tokens.cuh"
#include "mxkern/kernels/decode/parameters.h"
#include "plan/decode/plan.h"

namespace mxkern::cuda {

// x as the kernels read it, 16 bytes at a time: copied to `memory` where it must be.
inline Buffer readable_tokens(const char* function, const Buffer& x, void* memory, Stream stream) {
  if (copied_tokens_bytes(x) == 0) return x;
  const std::int64_t columns = round_up(x.shape.columns, DecodeLayout::tile_columns);
  const kernels::CopyTokensParameters p{
      static_cast<const std::uint16_t*>(x.data),
      x.shape.batch,
      x.shape.rows,
      x.shape.columns,
      x.row_stride,
      x.batch_stride,
      static_cast<std::uint16_t*>(memory),
      columns,
  };
  launch(function, kernels::copy_tokens_kernel,
         grid_of(ceil_div(columns, kernels::copy_tokens_threads * 8), x.shape.rows, x.shape.batch),
         kernels::copy_tokens_threads, 0, stream, p);
  return Buffer::dense(memory, x.dtype, {x.shape.batch, x.shape.rows, columns}, x.device);
}

// Whether the device has the tensor cores of Hopper's warpgroups, and this build the code for them.
inline bool has_decode_sm90([[maybe_unused]] const char* function, [[maybe_unused]] Device device) {
#if defined(MXKERN_HAS_SM90)
  return attribute_of(function, cudaDevAttrComputeCapabilityMajor, device.index) == 9;
#else
  return false;
#endif
}

// Boxes of 64 columns of so many tokens. Matrices that are all the same one are one of the map.
inline CUtensorMap map_tokens(const char* function, const Buffer& x, int rows) {
  return encode_tensor_map(
      function, {x.dtype == DType::float16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                 x.data,
                 {x.shape.columns, x.shape.rows, x.batch_stride == 0 ? 1 : x.shape.batch, 1},
                 {x.row_stride * 2, x.batch_stride * 2, 16},
                 {64, rows}});
}

// All but the addresses of weights, tokens and outputs, what lies between matrices of a batch, and
// how tokens are divided.
inline kernels::DecodeParameters decode_parameters(const DecodeLayout& layout, const Buffer& x,
                                                   const DecodePlan& plan,
                                                   const CoreFinish& finish) {
  kernels::DecodeParameters p{};
  p.layout = layout;
  p.tiles = static_cast<int>(layout.tiles_across());
  p.x_row_bytes = x.row_stride * 2;
  p.kinds_offset = layout.kinds_offset();
  p.tiles_down = static_cast<int>(layout.tiles_down());
  p.log2_ranks = plan.log2_ranks;
  p.log2_parts = plan.log2_parts;
  p.row_tiles = plan.row_tiles;
  p.inverse_row_tiles = ceil_div(65536, plan.row_tiles);
  p.stages = plan.stages;
  p.x_stages = plan.x_stages;
  p.shared_bytes = plan.shared_bytes;
  put_finish(finish, p);
  p.out_dtype = finish.out.dtype;
  p.out_row_stride = finish.out.row_stride;
  return p;
}

}  // namespace mxkern::cuda
