// mxkern/kernels/experts/gather_rows.cuh: copies of rows of a matrix in several parts, in an order
// that lies on the device.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

inline constexpr int gather_threads = 256;

// A part of each row: codes, or elements, or one number.
struct GatherPart {
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  std::int64_t from_step = 0, to_step = 0;  // bytes from a row to the next
  std::int64_t bytes = 0;                   // of a row; 0: there is no such part
  std::uint32_t nan = 0;                    // what stands, over and over, in a row of NaN
  bool in_pieces = false;                   // rows start on 16 bytes
};

// Scales in tiles, which become rows of their own.
struct GatherScales {
  const std::uint8_t* from = nullptr;  // null: there are none
  std::uint8_t* to = nullptr;
  ScaleIndex index = {};
  std::uint8_t nan = 0;
};

struct GatherRowsParameters {
  const std::int32_t* rows;  // [count]; -1: a row of zeros
  std::int64_t count;
  std::int64_t most;  // rows that there are; any other number gives a row of NaN
  GatherPart part[3];
  GatherScales scales;
};

__device__ __forceinline__ void gather_part(const GatherPart& part, std::int64_t at,
                                            std::int64_t row, bool exists, bool is_wrong) {
  const std::uint8_t* const from = part.from + (exists ? row : 0) * part.from_step;
  std::uint8_t* const to = part.to + at * part.to_step;
  const std::uint32_t other = is_wrong ? part.nan : 0u;
  std::int64_t done = 0;
  if (part.in_pieces) {
    const std::int64_t pieces = part.bytes / 16;
    for (std::int64_t i = threadIdx.x; i < pieces; i += gather_threads) {
      const uint4 piece =
          exists ? reinterpret_cast<const uint4*>(from)[i] : make_uint4(other, other, other, other);
      reinterpret_cast<uint4*>(to)[i] = piece;
    }
    done = pieces * 16;
  }
  for (std::int64_t i = done + threadIdx.x; i < part.bytes; i += gather_threads) {
    to[i] = exists ? from[i] : static_cast<std::uint8_t>(other >> (i % 4 * 8));
  }
}

// A row by a thread block, or every so many.
static __global__ void __launch_bounds__(gather_threads)
    gather_rows_kernel(const __grid_constant__ GatherRowsParameters p) {
  wait_for_kernels_ahead();
  let_dependents_start();
  for (std::int64_t at = blockIdx.x; at < p.count; at += gridDim.x) {
    const std::int64_t row = p.rows[at];
    const bool exists = row >= 0 && row < p.most;
    const bool is_wrong = !exists && row != -1;
#pragma unroll
    for (const GatherPart& part : p.part) {
      if (part.bytes > 0) gather_part(part, at, row, exists, is_wrong);
    }
    if (p.scales.from == nullptr) continue;
    const std::int64_t blocks = p.scales.index.blocks;
    for (std::int64_t b = threadIdx.x; b < blocks; b += gather_threads) {
      const std::uint8_t other = is_wrong ? p.scales.nan : std::uint8_t{0};
      p.scales.to[at * blocks + b] = exists ? p.scales.from[p.scales.index.offset(row, b)] : other;
    }
  }
}

}  // namespace mxkern::kernels
