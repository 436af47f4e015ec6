// cpu/kernels/quantize_lines.h: lines of a plain type to codes and scales.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/block_amax.h"
#include "cpu/kernels/block_scales.h"
#include "cpu/kernels/code_lanes.h"
#include "cpu/kernels/four_over_six.h"
#include "mxkern/numerics/rounding.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cpu {
namespace {

// Encodes step_elements elements, of which `x` is the first; multipliers: of its block and on.
template <class S, class T, Rounding rounding>
[[gnu::always_inline]] inline void encode_step(const T* x, const float* multipliers,
                                               const std::uint32_t* random, std::uint8_t* codes) {
  using Format = typename S::Format;
  BitLanes lanes[step_registers];
  for (int i = 0; i < step_registers; ++i) {
    const FloatLanes value = load_lanes(x + i * lane_count) * multipliers[i * lane_count / S::block];
    if constexpr (rounding == Rounding::nearest) {
      lanes[i] = encode_lanes<Format>(value);
    } else {
      lanes[i] = encode_stochastic_lanes<Format>(value,
                                                 load_vector<BitLanes>(random + i * lane_count));
    }
  }
  store_codes<Format::bits>(codes, narrow(lanes));
}

// Encodes one line of at most a chunk; `codes` of its first block.
template <class S, class T, Rounding rounding>
[[gnu::always_inline]] inline void encode_line(const T* x, std::int64_t elements,
                                               const float* multipliers,
                                               const std::uint32_t* random, std::uint8_t* codes) {
  constexpr int bits = S::Format::bits;
  constexpr std::int64_t step_bytes = step_elements * bits / 8;
  std::int64_t i = 0;
  for (; i + step_elements <= elements; i += step_elements) {
    encode_step<S, T, rounding>(x + i, multipliers + i / S::block,
                                rounding == Rounding::nearest ? nullptr : random + i,
                                codes + i * bits / 8);
  }
  // The rest, padded to a whole step; what is missing counts as zero.
  const std::int64_t bytes = code_row_bytes<S>(elements);
  for (; i * bits / 8 < bytes; i += step_elements) {
    const std::int64_t rest = higher_of<std::int64_t>(elements - i, 0);
    T last_x[step_elements] = {};
    std::uint32_t last_random[step_elements] = {};
    std::uint8_t last_codes[step_elements];
    copy_elements(last_x, x + i, rest);
    if constexpr (rounding == Rounding::stochastic) copy_elements(last_random, random + i, rest);
    encode_step<S, T, rounding>(last_x, multipliers + i / S::block, last_random, last_codes);
    copy_elements(codes + i * bits / 8, last_codes, lower_of(step_bytes, bytes - i * bits / 8));
  }
}

// The codes of a poisoned block, whatever its elements were encoded to.
template <class S>
[[gnu::always_inline]] inline void poison_blocks(const ChunkScales& chunk, std::int64_t elements,
                                                 std::uint8_t* codes) {
  constexpr int bits = S::Format::bits;
  static_assert(bits == 8 || S::Format::poison_code == 0, "packed poison codes are zero bytes");
  for (std::int64_t b = 0; b * S::block < elements; ++b) {
    if (float32::is_finite(chunk.amax[b])) continue;
    const std::int64_t rest = elements - b * S::block;
    const std::int64_t bytes = bits == 8 && rest < S::block ? rest : S::block_bytes;
    std::memset(codes + b * S::block_bytes, S::Format::poison_code,
                static_cast<std::size_t>(bytes));
  }
}

[[gnu::always_inline]] inline bool any_poisoned(const ChunkScales& chunk) {
  std::uint32_t largest = 0;
  for (const std::uint32_t amax : chunk.amax) largest = higher_of(largest, amax);
  return !float32::is_finite(largest);
}

template <class S, class T, Rounding rounding>
void quantize_lines(const QuantizeTask& task) {
  constexpr std::int64_t chunk_elements = chunk_blocks * S::block;
  const std::int64_t group = task.square ? S::block : 1;
  for (std::int64_t first = 0; first < task.lines; first += group) {
    const std::int64_t lines = lower_of(group, task.lines - first);
    for (std::int64_t start = 0; start < task.elements; start += chunk_elements) {
      const std::int64_t elements = lower_of(chunk_elements, task.elements - start);
      const int blocks = static_cast<int>(ceil_div(elements, S::block));
      const T* x = static_cast<const T*>(task.x) + first * task.x_stride + start;
      const std::uint32_t* random = nullptr;
      if constexpr (rounding == Rounding::stochastic) {
        random = task.random + first * task.random_stride + start;
      }
      std::uint8_t* codes =
          task.codes + first * task.code_stride + start / S::block * S::block_bytes;
      ScaleCursor cursor = task.scales;
      cursor.row += first;
      cursor.block += start / S::block;

      ChunkScales chunk = {};
      for (std::int64_t line = 0; line < lines; ++line) {
        block_amax<T, S::block>(x + line * task.x_stride, elements, chunk.amax);
      }
      block_scales<S>(chunk, blocks, task.rule, task.tensor);
      if constexpr (S::has_tensor_scale) {
        if (task.four_over_six) {
          choose_four_or_six<S>(x, task.x_stride, lines, elements, task.tensor, chunk);
        }
      }
      const bool poisoned = any_poisoned(chunk);
      for (std::int64_t line = 0; line < lines; ++line, ++cursor.row, codes += task.code_stride) {
        encode_line<S, T, rounding>(x + line * task.x_stride, elements, chunk.multipliers, random,
                                    codes);
        if constexpr (rounding == Rounding::stochastic) random += task.random_stride;
        if (poisoned) poison_blocks<S>(chunk, elements, codes);
        store_scales(chunk.bytes, blocks, cursor);
      }
    }
  }
}

}  // namespace
}  // namespace mxkern::cpu
