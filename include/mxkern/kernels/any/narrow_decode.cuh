// mxkern/kernels/any/narrow_decode.cuh: codes of 4, 6 and 8 bits of schemes known at run time back
// to values, looked up. Compiled, never executed on a GPU.
#pragma once

#include <cstdint>

#include "mxkern/kernels/any/narrow.cuh"

namespace mxkern::kernels {

// Rows of whole octets, which are stored to 16 bytes, in blocks of whole octets; fewer than 2^31.
struct NarrowDecodeParameters {
  AnyDecodeParameters<std::uint32_t> any;
  int scale_bits;
  std::int64_t row_bytes, across;  // across: blocks of a row
  std::uint32_t octets;
  NarrowExtent octets_of_row, octets_of_block;
  NarrowExtent rows, block_rows;
  bool plain_scales;  // one line of scales for each line of codes, in order
};

// The value of each code, as often as lanes can have banks of their own.
template <int Bits>
struct NarrowValues {
  static constexpr int codes = 1 << Bits, words = 2048;
  static constexpr int copies = codes * 32 <= words ? 32 : words / codes;
  float of[codes * copies];

  __device__ __forceinline__ void fill(const AnyDecoder<std::uint32_t>& decoder) {
    for (std::uint32_t i = threadIdx.x; i < codes * copies; i += narrow_threads) {
      of[i] = decode_any<std::uint32_t>(decoder, i / copies);
    }
  }
  __device__ __forceinline__ float value(std::uint32_t code) const {
    return of[code * copies | threadIdx.x % copies];
  }
};

// Eight codes in two halves, of 4 * Bits bits each.
template <int Bits>
__device__ __forceinline__ uint2 narrow_halves(const std::uint8_t* from) {
  if constexpr (Bits == 8) {
    return __ldcs(reinterpret_cast<const uint2*>(from));
  } else if constexpr (Bits == 4) {
    const std::uint32_t word = __ldcs(reinterpret_cast<const std::uint32_t*>(from));
    return make_uint2(word, word >> 16);
  } else {
    static_assert(Bits == 6);
    const auto* const parts = reinterpret_cast<const std::uint16_t*>(from);
    const std::uint32_t first = __ldcs(parts), second = __ldcs(parts + 1), third = __ldcs(parts + 2);
    return make_uint2(first | second << 16, second >> 8 | third << 8);
  }
}

template <class T, int Bits>
__global__ void __launch_bounds__(narrow_threads, 5)
    narrow_decode_kernel(const __grid_constant__ NarrowDecodeParameters p) {
  __shared__ NarrowValues<Bits> values;
  __shared__ float scale_values[256];
  values.fill(p.any.decoder);
  const bool has_table = p.scale_bits == 8;
  if (has_table) scale_values[threadIdx.x] = p.any.scheme.scale.decode(threadIdx.x);
  __syncthreads();
  const bool of_rows = p.any.scheme.tensor_scales == TensorScales::row;
  const bool has_tensor = p.any.scheme.has_tensor_scale();
  const ScaleIndex index = p.any.scheme.scale_index(p.any.shape, p.any.layout);
  struct Loaded {
    uint2 codes;
    std::uint32_t scale;
    float tensor;
    std::int64_t line;
    std::uint32_t of_row;
  };
  const auto load = [&](std::uint32_t octet) {
    Loaded loaded = {};
    if (octet >= p.octets) return loaded;
    const std::uint32_t line = p.octets_of_row.quotient(octet);
    const std::uint32_t of_row = octet - line * p.octets_of_row.size;
    loaded.codes =
        narrow_halves<Bits>(p.any.codes + line * p.row_bytes + std::int64_t{of_row} * Bits);
    const std::uint32_t block = p.octets_of_block.quotient(of_row);
    std::int64_t at = line * p.across + block;
    if (!p.plain_scales) {
      const std::uint32_t batch = p.rows.quotient(line);
      const std::uint32_t row = line - batch * p.rows.size;
      at = p.any.scheme.is_whole_tensor()
               ? 0
               : batch * index.size() + index.offset(p.block_rows.quotient(row), block);
    }
    loaded.scale = any_load_scale(p.any.scales, p.scale_bits, at);
    loaded.tensor = has_tensor ? p.any.tensor_scale[of_rows ? line : 0] : 1.0f;
    loaded.line = line;
    loaded.of_row = of_row;
    return loaded;
  };
  const std::uint32_t step = gridDim.x * narrow_threads;
  std::uint32_t octet = blockIdx.x * narrow_threads + threadIdx.x;
  Loaded own = load(octet);
  for (; octet < p.octets; octet += step) {
    const Loaded next = load(octet + step);
    const float scale =
        has_table ? scale_values[own.scale] : p.any.scheme.scale.decode(own.scale);
    float x[8];
    constexpr std::uint32_t mask = (1u << Bits) - 1u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = values.value(own.codes.x >> (Bits * i) & mask) * scale * own.tensor;
      x[i + 4] = values.value(own.codes.y >> (Bits * i) & mask) * scale * own.tensor;
    }
    narrow_store_values(static_cast<T*>(p.any.out.data) + own.line * p.any.out.row_stride +
                            std::int64_t{own.of_row} * any_elements,
                        x);
    own = next;
  }
}

}  // namespace mxkern::kernels
