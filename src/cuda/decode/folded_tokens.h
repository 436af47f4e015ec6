// cuda/decode/folded_tokens.h: folded rows as tokens of products with reordered weights.
#pragma once

#include "cuda/operands/row_scaled.h"
#include "cuda/operands/tensor_map.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/decode/interleave_rows.cuh"
#include "plan/decode/limits.h"

namespace mxkern::cuda {

// Rows in the order of interleaved_column: a buffer of 16 bits, each of which holds two elements.
struct InterleavedRows {
  Buffer elements;
  const std::int32_t* exponents;
};

// Of folded rows, in memory of interleaved_bytes of the result's shape.
inline InterleavedRows interleave_rows(const char* function, const RowScaled& x, void* memory,
                                       Device device, Stream stream, const RowCopies& copies = {}) {
  const Shape shape{x.batch, copies.rows != nullptr ? copies.count : x.rows, x.columns};
  const std::int64_t rows = shape.batch * shape.rows, row_bytes = interleaved_row_bytes(x.columns);
  auto* const bytes = static_cast<std::uint8_t*>(memory);
  auto* const exponents = reinterpret_cast<std::int32_t*>(bytes + interleaved_exponents(shape));
  const kernels::InterleaveRowsParameters p{static_cast<const std::uint8_t*>(x.data),
                                            bytes,
                                            x.row_bytes,
                                            row_bytes,
                                            rows,
                                            x.columns,
                                            copies.rows,
                                            x.batch * x.rows,
                                            x.exponents,
                                            exponents};
  launch<Start::early>(function, kernels::interleave_rows_kernel,
                       grid_of(ceil_div(rows * row_bytes / 16, kernels::interleave_threads)),
                       kernels::interleave_threads, 0, stream, p);
  return {Buffer::dense(memory, DType::bfloat16, {x.batch, shape.rows, row_bytes / 2}, device),
          copies.rows != nullptr ? exponents : x.exponents};
}

// Boxes of 128 elements of so many of these rows.
inline CUtensorMap map_folded(const char* function, const Buffer& x, int rows) {
  const std::int64_t row_bytes = x.shape.columns * 2;
  return encode_tensor_map(function, {CU_TENSOR_MAP_DATA_TYPE_UINT8,
                                      x.data,
                                      {row_bytes, x.shape.rows, x.shape.batch, 1},
                                      {row_bytes, row_bytes * x.shape.rows, 16},
                                      {128, rows}});
}

}  // namespace mxkern::cuda
