// mxkern/kernels/operands/both_folded.cuh: 16-bit elements to folded rows and folded columns, by
// scales that are known.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/operands/both_scales.cuh"
#include "mxkern/kernels/operands/fold.cuh"

namespace mxkern::kernels {

// One direction of the result.
struct BothOutput {
  FoldedRows folded;
  std::uint8_t* spreads;  // a second place for them, or null
};

struct BothFoldedParameters {
  BothParameters both;
  BothOutput rows, columns;
};

// What becomes of the elements of a block: the multiplier of its scale as a bfloat16, which holds
// all powers of two, in the upper half, and in the lower one what folding multiplies its codes
// with, as a half. NaN makes NaN of all.
__device__ __forceinline__ std::uint32_t both_factors(unsigned byte, unsigned largest) {
  const bool is_poisoned = byte == E8M0::nan_byte;
  const std::uint32_t multiplier =
      is_poisoned ? float32::nan_bits : bits_of(e8m0_multiplier(static_cast<std::int32_t>(byte)));
  const __half2 factor = BlockFold<E4M3>::factor_of(largest - byte, is_poisoned);
  return __byte_perm(multiplier, *reinterpret_cast<const std::uint32_t*>(&factor), 0x3254);
}

// The factors of eight elements, in pairs.
struct OctetFactors {
  std::uint32_t multipliers[4], folds[4];

  __device__ __forceinline__ void set(int pair, std::uint32_t low, std::uint32_t high) {
    multipliers[pair] = __byte_perm(low, high, 0x7632);
    folds[pair] = __byte_perm(low, high, 0x5410);
  }

  // One for all of them.
  __device__ __forceinline__ static OctetFactors of(std::uint32_t factors) {
    OctetFactors all;
#pragma unroll
    for (int k = 0; k < 4; ++k) all.set(k, factors, factors);
    return all;
  }

  // Quantizes an octet and folds it.
  template <class T>
  __device__ __forceinline__ PatchCodes operator()(const RawOctet<T>& raw) const {
    float v[8];
    if constexpr (std::is_same_v<T, bfloat16>) {
      // Multiplied by a power of two, whatever does not become a code of zero stays exact.
      RawOctet<T> scaled;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const __nv_bfloat162 pair =
            __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&raw.word[k]),
                    *reinterpret_cast<const __nv_bfloat162*>(&multipliers[k]));
        scaled.word[k] = *reinterpret_cast<const std::uint32_t*>(&pair);
      }
      unpack(scaled, v);
    } else {
      unpack(raw, v);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        v[2 * k] = __fmul_rn(v[2 * k], float_of(multipliers[k] << 16));
        v[2 * k + 1] = __fmul_rn(v[2 * k + 1], float_of(multipliers[k] & 0xFFFF0000u));
      }
    }
    const PatchCodes codes = unpacked<8>(encode_octet<E4M3>(v));
    __half2 factors[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) factors[k] = *reinterpret_cast<const __half2*>(&folds[k]);
    return {{fold_quad<E4M3>(codes.word[0], factors[0], factors[1]),
             fold_quad<E4M3>(codes.word[1], factors[2], factors[3])}};
  }
};

// Reads what nobody reads again: it leaves the second-level cache to others.
struct LastLoad {
  std::uint64_t policy;

  __device__ __forceinline__ LastLoad() {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  }

  template <class T>
  __device__ __forceinline__ RawOctet<T> operator()(const T* from, bool exists) const {
    RawOctet<T> raw = {};
    asm volatile(
        "{\n.reg .pred exists;\nsetp.ne.u32 exists, %6, 0;\n"
        "@exists ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;\n}\n"
        : "+r"(raw.word[0]), "+r"(raw.word[1]), "+r"(raw.word[2]), "+r"(raw.word[3])
        : "l"(from), "l"(policy), "r"(static_cast<unsigned>(exists))
        : "memory");
    return raw;
  }
};

struct BothFoldedMemory {
  using Lines = PatchLines<8, 32>;
  static constexpr int blocks = BothTiles::extent / 32;
  alignas(16) std::uint32_t factors[2][blocks][BothTiles::extent];  // both_factors
  alignas(16) std::uint8_t codes[2][Lines::bytes];                  // of rows, and of columns

  // Those of a lane's eight lines, which lie side by side.
  __device__ __forceinline__ void load_factors(int direction, int block, int line,
                                               std::uint32_t (&own)[patch_extent]) const {
    const auto* from = reinterpret_cast<const uint4*>(&factors[direction][block][line]);
    const uint4 low = from[0], high = from[1];
    own[0] = low.x, own[1] = low.y, own[2] = low.z, own[3] = low.w;
    own[4] = high.x, own[5] = high.y, own[6] = high.z, own[7] = high.w;
  }

  __device__ __forceinline__ void put(int direction, int line, int byte, const PatchCodes& own) {
    *reinterpret_cast<uint2*>(&codes[direction][Lines::offset(line, byte)]) =
        make_uint2(own.word[0], own.word[1]);
  }

  // Copies the lines of a direction out, of which `lines` exist. All of a line's bytes have room.
  __device__ __forceinline__ void store(int direction, std::uint8_t* to, std::int64_t line_bytes,
                                        int lines) const {
    constexpr int lanes = Lines::chunks, at_once = patch_threads / lanes;
    const int own = static_cast<int>(threadIdx.x) / lanes;
    const int at = static_cast<int>(threadIdx.x) % lanes * Lines::chunk_bytes;
    const std::uint8_t* from = codes[direction] + Lines::offset(own, at);
    to += own * line_bytes + at;
    const std::int64_t step = at_once * line_bytes;
#pragma unroll
    for (int i = 0; i < BothTiles::extent; i += at_once) {
      if (own + i < lines) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + Lines::offset(i, 0));
      }
      to += step;
    }
  }
};

// Thread blocks a multiprocessor. With more float16 would spill.
template <class T>
inline constexpr int both_folded_blocks = std::is_same_v<T, bfloat16> ? 4 : 3;

// Goes through the tiles of both_scales_kernel backwards: what that has read last lies in the
// second-level cache. Elements are on their way while the last of its thread blocks are at work.
// Device code of compute capability 8.9 and up.
template <class T>
__global__ void __launch_bounds__(patch_threads, both_folded_blocks<T>)
    both_folded_kernel(const __grid_constant__ BothFoldedParameters p) {
#if MXKERN_HAS_CVT_E4M3
  __shared__ BothFoldedMemory memory;
  const BothParameters& both = p.both;
  const BothTile tile = BothTile::of(true);
  PatchElements<T> patch;
  tile.load(both, patch, LastLoad());
  wait_at_start(Follows::behind);
  const int thread = static_cast<int>(threadIdx.x);
  const int direction = thread / BothTiles::extent, own_line = thread % BothTiles::extent;
  {
    const std::uint32_t word = both.scales[tile.scale_word()];
    const LineExtremes extremes = both.extremes[tile.line()];
#pragma unroll
    for (int i = 0; i < BothFoldedMemory::blocks; ++i) {
      memory.factors[direction][i][own_line] =
          both_factors(word >> 8 * i & 0xFFu, extremes.largest);
    }
    // The first tile of a line reports it.
    const BothOutput& out = direction == 0 ? p.rows : p.columns;
    const std::int64_t lines = direction == 0 ? both.rows : both.columns;
    const std::int64_t line = (direction == 0 ? tile.row() : tile.column()) + own_line;
    if ((direction == 0 ? tile.across : tile.down) == 0 && line < lines) {
      const std::int64_t index = tile.batch * lines + line;
      const unsigned spread = extremes.spread();
      out.folded.template finish<E4M3>(index, extremes.largest, spread);
      if (out.spreads != nullptr) out.spreads[index] = static_cast<std::uint8_t>(spread);
    }
  }
  __syncthreads();
  const int row = patch_row(), column = patch_column();
  std::uint32_t own[patch_extent];
  memory.load_factors(0, column / 32, row, own);
#pragma unroll
  for (int i = 0; i < patch_extent; ++i) {
    memory.put(0, row + i, column, OctetFactors::of(own[i])(patch.raw[i]));
  }
  patch.stay();
  memory.load_factors(1, row / 32, column, own);
  OctetFactors along_columns;
#pragma unroll
  for (int k = 0; k < 4; ++k) along_columns.set(k, own[2 * k], own[2 * k + 1]);
  PatchCodes turned[patch_extent];
#pragma unroll
  for (int i = 0; i < patch_extent; ++i) turned[i] = along_columns(patch.raw[i]);
  turn_patch<8>(turned);
#pragma unroll
  for (int i = 0; i < patch_extent; ++i) memory.put(1, column + i, row, turned[i]);
  __syncthreads();
  const FoldedRows &rows = p.rows.folded, &columns = p.columns.folded;
  memory.store(
      0, rows.data + tile.batch * rows.batch_bytes + tile.row() * rows.row_bytes + tile.column(),
      rows.row_bytes, BothTile::present(both.rows - tile.row()));
  memory.store(1,
               columns.data + tile.batch * columns.batch_bytes + tile.column() * columns.row_bytes +
                   tile.row(),
               columns.row_bytes, BothTile::present(both.columns - tile.column()));
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
