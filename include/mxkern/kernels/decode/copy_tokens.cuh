// mxkern/kernels/decode/copy_tokens.cuh: rows of 16-bit elements to aligned rows that zeros fill
// up.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"

namespace mxkern::kernels {

inline constexpr int copy_tokens_threads = 256;

struct CopyTokensParameters {
  const std::uint16_t* from;
  std::int64_t batch, rows, columns;
  std::int64_t row_stride, batch_stride;  // in elements
  std::uint16_t* to;                      // [batch, rows, to_columns]
  std::int64_t to_columns;                // a multiple of 8
};

// Eight columns a thread. Grid: columns along x, rows along y, batch along z.
static __global__ void __launch_bounds__(copy_tokens_threads)
    copy_tokens_kernel(CopyTokensParameters p) {
  const std::int64_t first =
      (blockIdx.x * static_cast<std::int64_t>(copy_tokens_threads) + threadIdx.x) * 8;
  if (first >= p.to_columns) return;
  for (std::int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    for (std::int64_t row = blockIdx.y; row < p.rows; row += gridDim.y) {
      const std::uint16_t* from = p.from + batch * p.batch_stride + row * p.row_stride + first;
      std::uint16_t element[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) element[i] = first + i < p.columns ? from[i] : std::uint16_t{0};
      const auto word = [&](int i) {
        return element[i] | static_cast<std::uint32_t>(element[i + 1]) << 16;
      };
      *reinterpret_cast<uint4*>(p.to + (batch * p.rows + row) * p.to_columns + first) =
          uint4{word(0), word(2), word(4), word(6)};
    }
  }
}

}  // namespace mxkern::kernels
