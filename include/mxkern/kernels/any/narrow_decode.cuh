// mxkern/kernels/any/narrow_decode.cuh: codes of 4, 6 and 8 bits of schemes known at run time back
// to values, looked up.
#pragma once

#include <cstdint>

#include "mxkern/kernels/any/narrow.cuh"

namespace mxkern::kernels {

// Rows of whole parts, of one or two octets, which are stored to 16 bytes, in blocks of whole
// parts; fewer than 2^30 of them, and distances that 32 bits hold.
struct NarrowDecodeParameters {
  AnyDecodeParameters<std::uint32_t> any;
  int scale_bits;
  std::uint32_t parts;
  std::uint32_t code_stride, out_stride, scale_stride;  // of rows: in parts, in blocks
  NarrowExtent parts_of_row, parts_of_block;
  NarrowExtent rows, block_rows;
  bool beside;        // as NarrowParameters has it
  bool plain_scales;  // one line of scales for each line of codes, in order
  ScaleIndex scale_index;
  std::int64_t scales_of_matrix;
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
  // The value of the code that begins at bit `first` of a word.
  __device__ __forceinline__ float value(std::uint32_t word, int first) const {
    const std::uint32_t code = word >> first & ((1u << Bits) - 1u);
    return of[code * copies | threadIdx.x % copies];
  }
};

// The codes of octets in halves, of 4 * Bits bits each.
template <int Bits, int octets>
struct NarrowHalves {
  std::uint32_t half[2 * octets];

  __device__ __forceinline__ void load(const std::uint8_t* from) {
    if constexpr (Bits == 8 && octets == 2) {
      const uint4 words = __ldcs(reinterpret_cast<const uint4*>(from));
      half[0] = words.x, half[1] = words.y, half[2] = words.z, half[3] = words.w;
    } else {
#pragma unroll
      for (int i = 0; i < octets; ++i) {
        Octet codes;
        if constexpr (Bits == 6) {
          const auto* const parts = reinterpret_cast<const std::uint16_t*>(from + 6 * i);
          codes = __ldcs(parts) | Octet{__ldcs(parts + 1)} << 16 | Octet{__ldcs(parts + 2)} << 32;
        } else {
          codes = load_whole_codes<Bits>(from + Bits * i);
        }
        half[2 * i] = static_cast<std::uint32_t>(codes);
        half[2 * i + 1] = static_cast<std::uint32_t>(codes >> (4 * Bits));
      }
    }
  }
};

template <class T, int Bits, int octets>
struct NarrowCoded {
  NarrowHalves<Bits, octets> codes;
  std::uint32_t scale, line, of_row;
  bool is_there;

  __device__ __forceinline__ void load(const NarrowDecodeParameters& p, std::uint32_t part) {
    is_there = part < p.parts;
    line = of_row = 0;
    if (!is_there) return;
    line = p.parts_of_row.quotient(part);
    of_row = part - line * p.parts_of_row.size;
    codes.load(p.any.codes + std::uint64_t{line * p.code_stride + of_row} * (Bits * octets));
    const std::uint32_t block = p.parts_of_block.quotient(of_row);
    std::int64_t at = line * p.scale_stride + block;
    if (!p.plain_scales) {
      const std::uint32_t batch = p.rows.quotient(line);
      const std::uint32_t row = line - batch * p.rows.size;
      at = batch * p.scales_of_matrix + p.scale_index.offset(p.block_rows.quotient(row), block);
    }
    scale = any_load_scale(p.any.scales, p.scale_bits, at);
  }
};

template <class T, int Bits, int octets>
__global__ void __launch_bounds__(narrow_threads, 4)
    narrow_decode_kernel(const __grid_constant__ NarrowDecodeParameters p) {
  __shared__ NarrowValues<Bits> values;
  __shared__ float scale_values[256];
  values.fill(p.any.decoder);
  const bool has_table = p.scale_bits == 8;
  if (has_table) scale_values[threadIdx.x] = p.any.scheme.scale.decode(threadIdx.x);
  __syncthreads();
  const bool of_rows = p.any.scheme.tensor_scales == TensorScales::row;
  float tensor = p.any.scheme.has_tensor_scale() ? *p.any.tensor_scale : 1.0f;
  const std::uint32_t step = gridDim.x * narrow_threads;
  std::uint32_t index = blockIdx.x * narrow_threads + threadIdx.x;
  NarrowCoded<T, Bits, octets> own = {}, next = {};
  own.load(p, index);
  // Whole warps go on together, as lanes exchange what they store.
  for (std::uint32_t end = p.parts + threadIdx.x % 32; index < end; index += step) {
    next.load(p, index + step);
    const float scale = has_table ? scale_values[own.scale] : p.any.scheme.scale.decode(own.scale);
    if (of_rows) tensor = p.any.tensor_scale[own.line];
    NarrowPart<T, octets> part;
#pragma unroll
    for (int o = 0; o < octets; ++o) {
      float x[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[i] = values.value(own.codes.half[2 * o + i / 4], Bits * (i % 4)) * scale * tensor;
      }
      part.octet[o] = narrow_elements<T>(x);
    }
    narrow_store_part(static_cast<T*>(p.any.out.data) +
                          std::uint64_t{own.line * p.out_stride + own.of_row} * (8 * octets),
                      part, own.is_there, p.beside);
    own = next;
  }
}

}  // namespace mxkern::kernels
