// mxkern/kernels/operands/quantize_folded_rows.cuh: plain rows to E4M3 under one power of two a
// row, each in the registers of a warp, or of a few.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/operands/fold.cuh"
#include "mxkern/kernels/quantize/four_octets.cuh"

namespace mxkern::kernels {

// Of one matrix of 16-bit elements in MXFP8 E4M3. Its rows start on 16 bytes and end with a block.
struct QuantizeFoldedRowsParameters {
  const void* x;
  std::int64_t row_stride;
  int rows, columns;
  int warps;  // of a row
  Follows follows;
  E8M0Rule rule;
  FoldedRows out;
  std::uint8_t* codes;  // null: not wanted, and no scales either; otherwise octets lie on 8 bytes
  std::int64_t code_row_bytes;
  std::uint8_t* scales;
  ScaleIndex scale_index;
};

inline constexpr int columns_of_octets = 256;  // of a warp whose lanes have an octet each

// A warp's columns of a row. Of each 256 a lane has eight, so that four lanes have a block. The
// scales of 1024 columns are worked out at once: the lane at place l of four has the one of their
// block in the l-th 256.
template <class T, int Octets>
struct QuantizeFoldedColumns {
  static constexpr unsigned everyone = 0xFFFFFFFFu;
  static constexpr int step = columns_of_octets, columns = Octets * step;
  static constexpr int lanes = 4;  // of a block
  static constexpr int fours = Octets / lanes;

  int left;  // columns of the row from this lane's first one on
  uint2 codes[Octets];
  unsigned byte[fours];  // of the scales that this lane has
  bool counts[fours];    // whether their blocks are neither zeros nor poisoned

  // Quantizes the octets that `row` has, from this lane's first column on; behind the row there are
  // zeros. Returns the largest scale of the warp.
  template <class Row>
  __device__ __forceinline__ unsigned quantize(const Row& row, const E8M0Rule& rule) {
    RawOctet<T> raw[Octets] = {};
#pragma unroll
    for (int i = 0; i < Octets; ++i) {
      if (i * step < left) raw[i] = row.octet(i * step);
    }
    unsigned largest = 0;
#pragma unroll
    for (int k = 0; k < fours; ++k) {
      PackedAmax<T> octets[lanes], block[1];
#pragma unroll
      for (int i = 0; i < lanes; ++i) octets[i] = packed_amax(raw[k * lanes + i]);
      share_amax<lanes>(octets, block);
      const std::uint32_t amax = block[0].value();
      const bool is_finite = float32::is_finite(amax);
      byte[k] = is_finite ? static_cast<unsigned>(e8m0_byte(rule, amax)) : E8M0::nan_byte;
      // An element that is not zero has no code of zero where it is its block's largest one.
      counts[k] = is_finite && amax != 0;
      if (is_finite) largest = max(largest, byte[k]);
      const float multiplier = is_finite ? e8m0_multiplier(static_cast<std::int32_t>(byte[k]))
                                         : float_of(float32::nan_bits);
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        codes[k * lanes + i] =
            encode(raw[k * lanes + i], __shfl_sync(everyone, multiplier, i, lanes));
      }
    }
    return __reduce_max_sync(everyone, largest);
  }

  // Writes the folded columns. Returns the spread of the warp.
  __device__ __forceinline__ unsigned write_folded(std::uint8_t* out, unsigned largest) const {
    unsigned spread = 0;
#pragma unroll
    for (int k = 0; k < fours; ++k) {
      const unsigned distance = largest - byte[k];
      if (counts[k]) spread = max(spread, distance);
      const __half2 factor = BlockFold<E4M3>::factor_of(distance, byte[k] == E8M0::nan_byte);
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        const uint2 own = codes[k * lanes + i];
        const BlockFold<E4M3> fold(__shfl_sync(everyone, factor, i, lanes));
        const int at = (k * lanes + i) * step;
        if (at < left) {
          *reinterpret_cast<uint2*>(out + at) = fold(own.x | static_cast<Octet>(own.y) << 32);
        }
      }
    }
    return __reduce_max_sync(everyone, spread);
  }

  __device__ __forceinline__ void write_codes(std::uint8_t* to) const {
#pragma unroll
    for (int i = 0; i < Octets; ++i) {
      if (i * step < left) *reinterpret_cast<uint2*>(to + i * step) = codes[i];
    }
  }

  // Of a row whose blocks the warp has from `first` on.
  __device__ __forceinline__ void write_scales(std::uint8_t* scales, const ScaleIndex& index,
                                               int row, int first) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int k = 0; k < fours; ++k) {
      const int block = first + (k * lanes + lane % lanes) * (32 / lanes) + lane / lanes;
      if (block < index.blocks) {
        scales[index.offset(row, block)] = static_cast<std::uint8_t>(byte[k]);
      }
    }
  }

 private:
  // Eight elements under their block's multiplier, which is NaN where that is poisoned.
  __device__ __forceinline__ static uint2 encode(const RawOctet<T>& raw, float multiplier) {
    float v[8];
    if constexpr (std::is_same_v<T, bfloat16>) {
      // Multiplied by a power of two, whatever does not become a code of zero stays exact.
      const __nv_bfloat162 both = __float2bfloat162_rn(multiplier);
      RawOctet<T> scaled;
#pragma unroll
      for (int i = 0; i < RawOctet<T>::words; ++i) {
        const __nv_bfloat162 pair =
            __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&raw.word[i]), both);
        scaled.word[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
      }
      unpack(scaled, v);
    } else {
      unpack(raw, v);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = __fmul_rn(v[i], multiplier);
    }
    const Octet octet = encode_octet<E4M3>(v);
    return make_uint2(static_cast<std::uint32_t>(octet), static_cast<std::uint32_t>(octet >> 32));
  }
};

// The warps of a row in a thread block that has several rows. They wait for one another, at a
// barrier of their own.
struct RowWarps {
  int warps, row, rank;

  __device__ __forceinline__ explicit RowWarps(int count) : warps(count) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    row = warp / count;
    rank = warp - row * count;
  }

  // The largest value of them; each gives its own. Two calls in a row need different slots, one a
  // warp.
  __device__ __forceinline__ unsigned max_of(unsigned value, unsigned* slots) const {
    if (warps == 1) return value;
    unsigned* own = slots + row * warps;
    if (threadIdx.x % 32 == 0) own[rank] = value;
    asm volatile("bar.sync %0, %1;" ::"r"(row), "r"(32 * warps) : "memory");
#pragma unroll 1
    for (int i = 0; i < warps; ++i) value = max(value, own[i]);
    return value;
  }
};

inline constexpr int all_rows_warps = 32;   // of a thread block, one a multiprocessor
inline constexpr int some_rows_warps = 8;   // of a thread block, four a multiprocessor
inline constexpr int most_rows_octets = 8;  // of a lane

// A row as it lies in memory, from a lane's first column on.
template <class Element>
struct PlainRow {
  using T = Element;
  const T* x;

  __device__ __forceinline__ PlainRow(const QuantizeFoldedRowsParameters& p, std::int64_t row,
                                      int column)
      : x(static_cast<const T*>(p.x) + row * p.row_stride + column) {}
  __device__ __forceinline__ RawOctet<T> octet(int at) const { return load_octet(x + at); }
};

// Few instructions are between the end of the kernel ahead and the first load. Where all rows fit
// on the device at once, they are in one thread block a multiprocessor: see fold_rows_kernel. `p`:
// those of the rows, with what makes a Row of them.
template <class Row, int Octets, int MostWarps, class Parameters>
__device__ __forceinline__ void quantize_folded_rows(const Parameters& p) {
  using Columns = QuantizeFoldedColumns<typename Row::T, Octets>;
  __shared__ unsigned slots[2][MostWarps];
  const RowWarps team(p.warps);
  const auto index = static_cast<int>(MostWarps == all_rows_warps
                                          ? team.row * gridDim.x + blockIdx.x
                                          : blockIdx.x * (blockDim.x / 32 / p.warps) + team.row);
  const bool exists = index < p.rows;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int begin = team.rank * Columns::columns;  // of the warp
  const int first = begin + lane * 8;
  Columns columns;
  columns.left = exists ? p.columns - first : 0;
  Row row(p, index, first);
  std::uint8_t* out = p.out.data + std::int64_t{index} * p.out.row_bytes + first;
  // Known before the wait, which the compiler leaves behind this as it depends on a parameter.
  asm volatile("" : "+l"(row.x), "+l"(out), "+r"(columns.left));
  wait_at_start(p.follows);
  const unsigned largest = team.max_of(columns.quantize(row, p.rule), slots[0]);
  unsigned spread = columns.write_folded(out, largest);
  if (p.codes != nullptr && exists) {
    columns.write_codes(p.codes + std::int64_t{index} * p.code_row_bytes + first);
    columns.write_scales(p.scales, p.scale_index, index, begin / 32);
  }
  spread = team.max_of(spread, slots[1]);
  if (team.rank == 0 && lane == 0 && exists) p.out.template finish<E4M3>(index, largest, spread);
  wait_at_end(p.follows);
}

// Device code of compute capability 8.9 and up.
template <class T, int Octets, int MostWarps>
__global__ void __launch_bounds__(32 * MostWarps, all_rows_warps / MostWarps)
    quantize_folded_rows_kernel(const __grid_constant__ QuantizeFoldedRowsParameters p) {
#if MXKERN_HAS_CVT_E4M3
  quantize_folded_rows<PlainRow<T>, Octets, MostWarps>(p);
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
