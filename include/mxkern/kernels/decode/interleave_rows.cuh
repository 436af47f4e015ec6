// mxkern/kernels/decode/interleave_rows.cuh: folded rows in the order in which FP8 tensor cores
// meet reordered weights.
#pragma once

#include <cstdint>

#include "mxkern/kernels/decode/interleaved.h"
#include "mxkern/kernels/device/dependents.cuh"

namespace mxkern::kernels {

inline constexpr int interleave_threads = 256;

struct InterleaveRowsParameters {
  const std::uint8_t* from;  // rows and steps are multiples of 16 bytes
  std::uint8_t* to;
  std::int64_t from_step, to_step;
  std::int64_t rows, columns;
  // Which row each one is a copy of, with its exponent, of so many; null: of the same one, and the
  // exponents stay where they are. -1: a row of zeros; any other number gives a row of NaN.
  const std::int32_t* sources;
  std::int64_t most;
  const std::int32_t* exponents;
  std::int32_t* copied_exponents;
};

// A thread has 16 columns, of which those beyond the last one become zeros.
static __global__ void __launch_bounds__(interleave_threads)
    interleave_rows_kernel(const __grid_constant__ InterleaveRowsParameters p) {
  wait_for_kernels_ahead();
  let_dependents_start();
  const std::int64_t pieces = p.to_step / 16;
  const std::int64_t piece = std::int64_t{blockIdx.x} * interleave_threads + threadIdx.x;
  if (piece >= p.rows * pieces) return;
  const std::int64_t row = piece / pieces, at = piece % pieces * 16;
  std::int64_t source = row;
  std::uint32_t word[4] = {};
  if (p.sources != nullptr) source = p.sources[row];
  const bool exists = source >= 0 && source < p.most;
  if (exists) {
    const uint4 v = *reinterpret_cast<const uint4*>(p.from + source * p.from_step + at);
    word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
  } else if (source != -1) {
    word[0] = word[1] = word[2] = word[3] = 0x7F7F7F7Fu;  // NaN in E4M3
  }
  if (p.sources != nullptr && at == 0) p.copied_exponents[row] = exists ? p.exponents[source] : 0;
  const auto left = static_cast<int>(p.columns - at);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int bytes = left - 4 * i;
    if (bytes < 4) word[i] &= bytes <= 0 ? 0u : (1u << (8 * bytes)) - 1;
  }
  *reinterpret_cast<uint4*>(p.to + row * p.to_step + at) =
      make_uint4(__byte_perm(word[0], word[2], 0x5410), __byte_perm(word[0], word[2], 0x7632),
                 __byte_perm(word[1], word[3], 0x5410), __byte_perm(word[1], word[3], 0x7632));
}

}  // namespace mxkern::kernels
