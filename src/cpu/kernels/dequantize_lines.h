// cpu/kernels/dequantize_lines.h: lines of codes and scales to a plain type.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/chunk.h"
#include "cpu/kernels/code_lanes.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/scheme.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cpu {
namespace {

// What the elements of each block are multiplied with, one after the other.
struct ChunkFactors {
  alignas(64) std::uint8_t bytes[chunk_blocks];
  alignas(64) float first[chunk_blocks];
  alignas(64) float second[chunk_blocks];
};

// UE4M3: the block's scale, then the tensor's. E8M0: both factors are normal numbers. Processors
// are slow with subnormal operands, and the scale of every block of zeros is the subnormal 2^-127.
// The product with the first factor is exact, so that the value is still rounded once.
template <class S>
[[gnu::noinline]] void chunk_factors(ChunkFactors& chunk, float tensor_scale) {
  for (int b = 0; b < chunk_blocks; ++b) {
    if constexpr (S::has_tensor_scale) {
      chunk.first[b] = UE4M3::decode(chunk.bytes[b]);
      chunk.second[b] = tensor_scale;
    } else {
      const std::uint32_t byte = chunk.bytes[b];
      constexpr std::uint32_t small = 64;
      const std::uint32_t biased = byte < small ? byte + small : byte;
      const std::uint32_t bits = biased << float32::mantissa_bits;
      chunk.first[b] = float_of(byte == E8M0::nan_byte ? float32::nan_bits : bits);
      chunk.second[b] = byte < small ? 0x1p-64f : 1.0f;
    }
  }
}

template <class S, class T>
[[gnu::always_inline]] inline void decode_step(const std::uint8_t* codes, const float* first,
                                               const float* second, T* out) {
  using Format = typename S::Format;
  BitLanes lanes[step_registers];
  widen(load_codes<Format::bits>(codes), lanes);
  for (int i = 0; i < step_registers; ++i) {
    const int block = i * lane_count / S::block;
    const FloatLanes value = decode_lanes<Format>(lanes[i]) * first[block] * second[block];
    store_lanes(out + i * lane_count, with_one_nan(value));
  }
}

// Decodes one line of at most a chunk.
template <class S, class T>
[[gnu::always_inline]] inline void decode_line(const std::uint8_t* codes, const float* first,
                                               const float* second, std::int64_t elements, T* out) {
  constexpr int bits = S::Format::bits;
  constexpr std::int64_t step_bytes = step_elements * bits / 8;
  std::int64_t i = 0;
  for (; i + step_elements <= elements; i += step_elements) {
    decode_step<S>(codes + i * bits / 8, first + i / S::block, second + i / S::block, out + i);
  }
  // The rest, padded to a whole step.
  const std::int64_t bytes = code_row_bytes<S>(elements);
  for (; i < elements; i += step_elements) {
    std::uint8_t last_codes[step_elements] = {};
    T last_out[step_elements];
    copy_elements(last_codes, codes + i * bits / 8, lower_of(step_bytes, bytes - i * bits / 8));
    decode_step<S>(last_codes, first + i / S::block, second + i / S::block, last_out);
    copy_elements(out + i, last_out, lower_of<std::int64_t>(step_elements, elements - i));
  }
}

template <class S, class T>
void dequantize_lines(const DequantizeTask& task) {
  const ChunkShape shape = ChunkShape::of<S>(task.elements);
  ChunkFactors chunk = {};
  for (std::int64_t first = 0; first < task.lines; first += shape.lines) {
    const std::int64_t lines = lower_of(shape.lines, task.lines - first);
    for (std::int64_t start = 0; start < task.elements; start += shape.elements) {
      const std::int64_t elements = lower_of(shape.elements, task.elements - start);
      const std::int64_t first_block = start / S::block;
      ScaleCursor cursor = task.scales;
      cursor.row += first;
      cursor.block += first_block;
      for (std::int64_t line = 0; line < lines; ++line, ++cursor.row) {
        load_scales(cursor, ceil_div(elements, S::block), chunk.bytes + line * shape.line_blocks);
      }
      chunk_factors<S>(chunk, task.tensor_scale);
      for (std::int64_t line = 0; line < lines; ++line) {
        const std::int64_t block = line * shape.line_blocks;
        decode_line<S>(
            task.codes + (first + line) * task.code_stride + first_block * S::block_bytes,
            chunk.first + block, chunk.second + block, elements,
            static_cast<T*>(task.out) + (first + line) * task.out_stride + start);
      }
    }
  }
}

}  // namespace
}  // namespace mxkern::cpu
