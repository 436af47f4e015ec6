// cpu/kernels/quantize_lines.h: lines of a plain type to codes and scales.
// Only files in cpu/instances/ may include it.
#pragma once

#include <type_traits>

#include "cpu/kernels/bfloat16_pairs.h"
#include "cpu/kernels/block_amax.h"
#include "cpu/kernels/block_scales.h"
#include "cpu/kernels/code_lanes.h"
#include "cpu/kernels/encode_fp4.h"
#include "cpu/kernels/encode_halves.h"
#include "cpu/kernels/four_over_six.h"
#include "cpu/kernels/rounded_lanes.h"
#include "cpu/kernels/streamed_bytes.h"
#include "cpu/runtime/prefetch.h"
#include "mxkern/numerics/rounding.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cpu {
namespace {

// Encodes step_elements elements, of which `x` is the first; multipliers: of its block and on.
template <class S, class T, Rounding rounding>
[[gnu::always_inline]] inline void encode_step(const T* x, const float* multipliers,
                                               const std::uint16_t* random, std::uint8_t* codes) {
  using Format = typename S::Format;
#if defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr (rounding == Rounding::nearest && is_fp4<Format>) {
    return encode_fp4_step<S>(x, multipliers, codes);
  }
#endif
  BitLanes lanes[step_registers];
  for (int i = 0; i < step_registers; ++i) {
    const FloatLanes value =
        load_lanes(x + i * lane_count) * multipliers[i * lane_count / S::block];
    lanes[i] = rounded_lanes<Format, rounding>(
        value, [&] { return load_halves(random + i * lane_count); });
  }
  store_codes<Format::bits>(codes, narrow(lanes));
}

#if defined(__AVX2__)
// The same for bfloat16 rounded to nearest, in pairs.
template <class S>
[[gnu::always_inline]] inline void encode_pairs(const bfloat16* x, const float* multipliers,
                                                std::uint8_t* codes) {
  using Format = typename S::Format;
  constexpr int half = step_elements / 2;
  BitLanes lanes[step_registers];
  for (int i = 0; i < 2; ++i) {
    const FloatPairs values = load_pairs(x + i * half);
    const FloatLanes factors = pair_factors<S::block>(multipliers + i * half / S::block);
    lanes[2 * i] = nearest_lanes<Format>(values.even * factors);
    lanes[2 * i + 1] = nearest_lanes<Format>(values.odd * factors);
  }
  store_codes<Format::bits>(codes, narrow_pairs(lanes));
}

template <class S, class T, Rounding rounding>
requires(std::is_same_v<T, bfloat16>&& rounding == Rounding::nearest)
    [[gnu::always_inline]] inline void encode_step(const T* x, const float* multipliers,
                                                   const std::uint16_t*, std::uint8_t* codes) {
  if constexpr (encodes_halves<S>) {
    if (encode_halves<S>(x, multipliers, codes)) return;
  }
  if constexpr (is_fp4<typename S::Format>) {
    return encode_fp4_step<S>(x, multipliers, codes);
  }
  encode_pairs<S>(x, multipliers, codes);
}
#endif

// Reading alternates with encoding: asking for the chunk after the next keeps the memory busy
// meanwhile. A processor asks for a dozen lines of the cache at once. Where encoding takes little
// longer than looking for the largest magnitudes the requests are spread: those for a quarter of
// the elements come in that time.
[[gnu::always_inline]] constexpr bool is_asked_early([[maybe_unused]] std::int64_t element) {
#if defined(__AVX512F__)
  return element % 256 < 64;
#else
  return false;
#endif
}

// Encodes one line of at most a chunk; `codes` of its first block.
template <class S, class T, Rounding rounding>
[[gnu::always_inline]] inline void encode_line(const T* x, std::int64_t elements,
                                               const float* multipliers,
                                               const std::uint16_t* random, std::uint8_t* codes) {
  constexpr int bits = S::Format::bits;
  constexpr std::int64_t step_bytes = step_elements * bits / 8;
  constexpr std::int64_t chunk_elements = chunk_blocks<S> * S::block;
  std::int64_t i = 0;
  for (; i + step_elements <= elements; i += step_elements) {
    if (elements == chunk_elements && !is_asked_early(i)) {
      prefetch_rows(x + i + 2 * chunk_elements, 0, 1, step_elements * sizeof(T));
    }
    encode_step<S, T, rounding>(x + i, multipliers + i / S::block,
                                rounding == Rounding::nearest ? nullptr : random + i,
                                codes + i * bits / 8);
  }
  // The rest, padded to a whole step; what is missing counts as zero.
  const std::int64_t bytes = code_row_bytes<S>(elements);
  for (; i * bits / 8 < bytes; i += step_elements) {
    const std::int64_t rest = higher_of<std::int64_t>(elements - i, 0);
    T last_x[step_elements] = {};
    std::uint16_t last_random[step_elements] = {};
    std::uint8_t last_codes[step_elements];
    copy_elements(last_x, x + i, rest);
    if constexpr (rounding == Rounding::stochastic) copy_elements(last_random, random + i, rest);
    encode_step<S, T, rounding>(last_x, multipliers + i / S::block, last_random, last_codes);
    copy_elements(codes + i * bits / 8, last_codes, lower_of(step_bytes, bytes - i * bits / 8));
  }
}

// The codes of a poisoned block, whatever its elements were encoded to.
template <class S>
[[gnu::always_inline]] inline void poison_blocks(const std::uint32_t* amax, std::int64_t elements,
                                                 std::uint8_t* codes) {
  constexpr int bits = S::Format::bits;
  static_assert(bits == 8 || S::Format::poison_code == 0, "packed poison codes are zero bytes");
  for (std::int64_t b = 0; b * S::block < elements; ++b) {
    if (float32::is_finite(amax[b])) continue;
    const std::int64_t rest = elements - b * S::block;
    const std::int64_t bytes = bits == 8 ? lower_of<std::int64_t>(rest, S::block) : S::block_bytes;
    std::memset(codes + b * S::block_bytes, S::Format::poison_code,
                static_cast<std::size_t>(bytes));
  }
}

// Finds the largest magnitudes of a chunk's blocks, and says whether all are finite. Lines of a
// square group share their blocks. Returns the number of blocks, up to a whole register.
template <class S, class T>
[[gnu::noinline]] int chunk_amax(const T* x, std::int64_t x_stride, std::int64_t lines,
                                 std::int64_t elements, int line_blocks, bool square,
                                 ChunkScales<S>& chunk) {
  // Registers, and the elements of one.
  constexpr int held = folded_blocks<T, S::block>, width = S::block * held;
  BitLanes folded[chunk_blocks<S> / held];
  const int line_registers = line_blocks / held;
  const std::int64_t whole = elements / width;
  const std::int64_t rest = elements % width;
  int registers = square ? line_registers : static_cast<int>(lines) * line_registers;
  for (std::int64_t line = 0; line < lines; ++line, x += x_stride) {
    BitLanes* target = folded + (square ? 0 : line * line_registers);
    const bool join = square && line != 0;
    const auto add = [&](std::int64_t i, BitLanes lanes) __attribute__((always_inline)) {
      target[i] = join ? higher_of<BitLanes>(target[i], lanes) : lanes;
    };
    for (std::int64_t i = 0; i < whole; ++i) {
      if (elements == chunk_blocks<S> * S::block && is_asked_early(i * width)) {
        prefetch_rows(x + i * width + 2 * elements, 0, 1, width * sizeof(T));
      }
      add(i, fold_blocks<T, S::block>(x + i * width));
    }
    if (rest != 0) add(whole, fold_short_blocks<T, S::block>(x + whole * width, rest));
    for (std::int64_t i = whole + (rest != 0); i < line_registers; ++i) target[i] = BitLanes{};
  }
  constexpr int together = lane_count / held;
  for (; registers % together != 0; ++registers) folded[registers] = BitLanes{};
  for (int i = 0; i < registers; i += together) {
    store_vector(chunk.amax + i * held, float_magnitudes<T>(reduce_each<held>(folded + i)));
  }
  return registers * held;
}

template <class S, class T, Rounding rounding>
void quantize_lines(const QuantizeTask& task) {
  ChunkShape shape = ChunkShape::of<S>(task.elements);
  if (task.square) shape.lines = S::block;
  ChunkScales<S> chunk;
  StreamedBytes<chunk_blocks<S> * S::block_bytes> streamed;
  const bool streams = task.streams && shape.lines == 1;
  for (std::int64_t first = 0; first < task.lines; first += shape.lines) {
    const std::int64_t lines = lower_of(shape.lines, task.lines - first);
    for (std::int64_t start = 0; start < task.elements; start += shape.elements) {
      const std::int64_t elements = lower_of(shape.elements, task.elements - start);
      const T* x = static_cast<const T*>(task.x) + first * task.x_stride + start;
      const int blocks =
          chunk_amax<S>(x, task.x_stride, lines, elements, shape.line_blocks, task.square, chunk);
      block_scales<S>(chunk, blocks, task.rule, task.tensor);
      if constexpr (S::has_tensor_scale) {
        if (task.four_over_six) {
          choose_four_or_six<S>(x, task.x_stride, lines, elements, shape.line_blocks, task.square,
                                task.square && task.transposed ? task.choice : nullptr, task.tensor,
                                task.block_error, chunk, blocks);
        }
      }
      const bool poisoned = !all_finite(chunk, blocks);

      const std::int64_t first_block = start / S::block;
      ScaleCursor cursor = task.scales;
      cursor.row += first;
      cursor.block += first_block;
      std::uint8_t* codes = task.codes + first * task.code_stride + first_block * S::block_bytes;
      const std::uint16_t* random = nullptr;
      if constexpr (rounding == Rounding::stochastic) {
        random = task.random + first * task.random_stride + start;
      }
      for (std::int64_t line = 0; line < lines; ++line) {
        // Short stretches of many rows are not foreseen by the processor.
        constexpr std::int64_t distance = 6;
        if (line + distance < task.lines - first && lines > 1) {
          prefetch_rows<1>(codes + distance * task.code_stride, 0, 1, code_row_bytes<S>(elements));
        }
        if (streams) {
          if (start == 0) streamed.begin(codes);
          codes = streamed.place();
        }
        const std::int64_t block = task.square ? 0 : line * shape.line_blocks;
        encode_line<S, T, rounding>(x + line * task.x_stride, elements, chunk.multipliers + block,
                                    random, codes);
        if (poisoned) poison_blocks<S>(chunk.amax + block, elements, codes);
        store_scales<S>(chunk.bytes + block, ceil_div(elements, S::block), cursor);
        if (streams) streamed.write(code_row_bytes<S>(elements));
        codes += task.code_stride;
        ++cursor.row;
        if constexpr (rounding == Rounding::stochastic) random += task.random_stride;
      }
    }
    if (streams) streamed.end();
  }
  if (streams) end_streams();
}

}  // namespace
}  // namespace mxkern::cpu
