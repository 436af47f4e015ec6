// cpu/kernels/quantize_across.h: lines that lie across memory, as columns do, to codes and scales.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/across_rows.h"
#include "cpu/kernels/bfloat16_pairs.h"
#include "cpu/kernels/block_amax.h"
#include "cpu/kernels/block_scales.h"
#include "cpu/kernels/encode_fp4.h"
#include "cpu/kernels/four_over_six.h"
#include "cpu/kernels/halves_across.h"
#include "cpu/kernels/random_words.h"
#include "cpu/kernels/rounded_lanes.h"
#include "cpu/kernels/streamed_bytes.h"
#include "cpu/kernels/word_lanes.h"
#include "cpu/runtime/prefetch.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cpu {
namespace {

// Registers of lines: what 32-bit lanes make of row `x`. Of bfloat16, even lines and odd ones.
template <class T>
inline constexpr LineOrder across_order(int group) {
#if defined(__AVX2__)
  if (std::is_same_v<T, bfloat16>) {
    return {group / 2 * 2 * lane_count + group % 2, 2, 2 * quarter_lanes};
  }
#endif
  return {group * lane_count, 1, quarter_lanes};
}

template <class T>
[[gnu::always_inline]] inline FloatLanes load_across(const T* x, int group) {
#if defined(__AVX2__)
  if constexpr (std::is_same_v<T, bfloat16>) {
    const auto pairs = load_vector<BitLanes>(x + group / 2 * 2 * lane_count);
    return float_of<BitLanes>(group % 2 == 0 ? pairs << 16 : pairs & 0xFFFF0000u);
  }
#endif
  return load_lanes(x + group * lane_count);
}

// The random words of the same lanes of a row.
template <class T>
[[gnu::always_inline]] inline BitLanes random_across(const std::uint16_t* row, int group) {
#if defined(__AVX2__)
  if constexpr (std::is_same_v<T, bfloat16>) {
    const auto pairs = load_vector<BitLanes>(row + group / 2 * 2 * lane_count);
    return group % 2 == 0 ? pairs & 0xFFFFu : pairs >> 16;
  }
#endif
  return load_halves(row + group * lane_count);
}

// Squares of a chunk: as many lines as a block has elements share its largest magnitude.
template <class S>
[[gnu::always_inline]] inline void join_squares(ChunkScales<S>& chunk) {
  for (int first = 0; first < chunk_blocks<S>; first += S::block) {
    std::uint32_t* amax = chunk.amax + first;
    std::uint32_t largest = 0;
    for (int i = 0; i < S::block; ++i) largest = higher_of(largest, amax[i]);
    for (int i = 0; i < S::block; ++i) amax[i] = largest;
  }
}

// The same scales as choose_four_or_six, of blocks that are no squares.
template <class S, class T>
[[gnu::noinline]] void choose_across(const T* copy, TensorScale tensor, BlockError kind,
                                     ChunkScales<S>& chunk) {
  for (int first = 0; first < chunk_blocks<S>; first += lane_count) {
    FourOrSix<S> choice(chunk, first, tensor, kind);
    const T* x = copy + first / across_lines * S::block * most_across + first % across_lines;
    for (int i = 0; i < S::block; ++i) choice.add(load_lanes(x + i * most_across));
    choice.store(chunk, first);
  }
}

// Appends code number `i` of Bits bits to the words that began with code 0.
template <int Bits>
[[gnu::always_inline]] inline void append_code(BitLanes* words, int i, BitLanes code) {
  const int position = i * Bits;
  words[position / 32] |= code << (position % 32);
  if (position % 32 + Bits > 32) words[position / 32 + 1] |= code >> (32 - position % 32);
}

// Encodes the lines of one register; `random` holds words as `x` does elements.
template <class S, Rounding rounding, class T>
[[gnu::always_inline]] inline void encode_group(const T* x, const std::uint16_t* random, int group,
                                                const float* multipliers, std::uint8_t* codes) {
  using Format = typename S::Format;
  // Codes that fill whole words.
  constexpr int elements = Format::bits == 8 ? 4 : Format::bits == 4 ? 8 : 16;
  constexpr int filled = elements * Format::bits / 32;
  const LineOrder order = across_order<T>(group);
  FloatLanes factors[across_blocks<S>];
  for (int block = 0; block < across_blocks<S>; ++block) {
    float memory[lane_count];
    for (int i = 0; i < lane_count; ++i) {
      memory[i] = multipliers[block * across_lines + order(i / quarter_lanes, i % quarter_lanes)];
    }
    factors[block] = load_vector<FloatLanes>(memory);
  }
  BitLanes words[Format::bits];
  for (int w = 0; w < Format::bits; w += filled) {
    BitLanes fill[filled + 1] = {};
    const int first = w / filled * elements;
    const FloatLanes factor = factors[first / S::block];
#if defined(__AVX2__) && !defined(__AVX512F__)
    if constexpr (rounding == Rounding::nearest && is_fp4<Format>) {
      FloatLanes values[elements];
      for (int i = 0; i < elements; ++i) {
        values[i] = load_across(x + (first + i) * most_across, group) * factor;
      }
      words[w] = encode_fp4_words(values);
      continue;
    }
#endif
#pragma GCC unroll 16
    for (int i = 0; i < elements; ++i) {
      const int row = (first + i) * most_across;
      const FloatLanes value = load_across(x + row, group) * factor;
      append_code<Format::bits>(fill, i, rounded_lanes<Format, rounding>(value, [&] {
                                  return random_across<T>(random + row, group);
                                }));
    }
    for (int i = 0; i < filled; ++i) words[w + i] = fill[i];
  }
  store_lines(words, order, codes, AcrossMemory::code_stride);
}

// Copies less than a line of the cache, mostly sixteen bytes at a time.
[[gnu::always_inline]] inline void copy_short(std::uint8_t* target, const std::uint8_t* source,
                                              std::int64_t bytes) {
  using Sixteen = std::uint8_t __attribute__((vector_size(16)));
  for (; bytes >= 16; bytes -= 16, target += 16, source += 16) {
    store_vector(target, load_vector<Sixteen>(source));
  }
  if (bytes > 0) copy_elements(target, source, bytes);
}

// Writes the codes of some lines that are on their way.
[[gnu::always_inline]] inline void stream_lines(AcrossMemory::Stream& stream, std::int64_t lines) {
  constexpr int lines_ahead = 16;
  lines = lower_of(lines, stream.lines);
  stream.lines -= lines;
  for (; lines > 0; --lines) {
    // Lines of the cache that are not written as a whole are read before.
    const std::uint8_t* ahead = stream.target + lines_ahead * stream.stride;
    if (stream.begin != 0) {
      __builtin_prefetch(ahead, 1);
      copy_short(stream.target, stream.codes, stream.begin);
    }
    for (std::int64_t i = stream.begin; i < stream.end; i += cache_line) {
      stream_line(stream.target + i, stream.codes + i);
    }
    const std::uint8_t* rest = stream.codes + stream.end;
    if (stream.is_last) {
      __builtin_prefetch(ahead + stream.bytes - 1, 1);
      copy_short(stream.target + stream.end, rest, stream.bytes - stream.end);
    } else {
      copy_short(stream.rest, rest, stream.bytes - stream.end);
    }
    stream.target += stream.stride;
    stream.codes += AcrossMemory::code_stride;
    stream.rest += AcrossMemory::code_stride;
  }
}

// Has codes written in whole lines of the cache, and what is no whole line only where lines begin
// or end.
inline void start_stream(const QuantizeAcrossTask& across, std::int64_t code_bytes) {
  AcrossMemory& memory = across.memory;
  AcrossMemory::Stream& stream = memory.stream;
  stream.target = across.lines.codes - memory.carried;
  stream.stride = across.lines.code_stride;
  stream.codes = memory.codes[memory.turn];
  stream.rest = memory.codes[1 - memory.turn];
  stream.lines = across.lines.lines;
  stream.bytes = memory.carried + code_bytes;
  const auto offset =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(stream.target)) % cache_line;
  stream.begin = lower_of(offset == 0 ? 0 : cache_line - offset, stream.bytes);
  stream.end = stream.begin + (stream.bytes - stream.begin) / cache_line * cache_line;
  stream.is_last = across.is_last;
  memory.carried = across.is_last ? 0 : static_cast<int>(stream.bytes - stream.end);
  memory.turn = 1 - memory.turn;
}

// What goes on while chunks are computed, in shares: memory is asked for, and codes are written. A
// burst of writes past the caches would be waited for. Beside a copy of rows, codes and those on
// their way the first-level cache has hardly any room for the next rows: what is not even in the
// second one is asked for there, as are rows of float32.
template <class T>
class Background {
 public:
  Background(const Ahead& ahead, std::int64_t shares, const QuantizeAcrossTask& across)
      : start_(static_cast<const std::byte*>(ahead.start)),
        stride_(ahead.stride),
        left_(ahead.rows),
        // The last byte may be in one line more.
        bytes_(ahead.bytes + reinterpret_cast<std::uintptr_t>(ahead.start) % cache_line),
        share_(ceil_div(ahead.rows, shares)),
        stream_(across.memory.stream),
        is_near_(across.is_near && sizeof(T) < 4) {}

  [[gnu::always_inline]] void step() {
    const std::int64_t rows = lower_of(share_, left_);
    if (is_near_) {
      prefetch_rows<0, first_level>(start_, stride_, rows, bytes_);
    } else {
      prefetch_rows<0, second_level>(start_, stride_, rows, bytes_);
    }
    start_ += rows * stride_;
    left_ -= rows;
    stream_lines(stream_, streamed_lines);
  }

 private:
  static constexpr int steps = most_across / across_elements * most_across / lane_count;
  static constexpr std::int64_t streamed_lines = ceil_div(most_across, steps);

  const std::byte* start_;
  std::int64_t stride_;
  std::int64_t left_;
  std::int64_t bytes_;
  std::int64_t share_;
  AcrossMemory::Stream& stream_;
  bool is_near_;
};

// Encodes a chunk.
template <class S, Rounding rounding, class T>
[[gnu::noinline]] void encode_across(const T* x, const std::uint16_t* random,
                                     const ChunkScales<S>& chunk, std::uint8_t* codes,
                                     Background<T>& background) {
  [[maybe_unused]] constexpr bool halves =
      std::is_same_v<T, bfloat16> && rounding == Rounding::nearest;
  constexpr std::int64_t code_stride = AcrossMemory::code_stride;
  for (int i = 0; i < across_lines / lane_count; ++i) {
    background.step();
#if defined(__AVX2__)
    if constexpr (halves && encodes_halves<S> && across_blocks<S> == 1) {
      const int line = i * lane_count;
      if (i % 2 == 0 && encode_halves_across<S>(x + line, most_across, chunk.amax + line,
                                                chunk.multipliers + line,
                                                codes + line * code_stride, code_stride)) {
        ++i;
        background.step();
        continue;
      }
    }
#endif
#if defined(__AVX512F__)
    if constexpr (halves && is_fp4<typename S::Format> && S::block == 16) {
      static_assert(across_lines == half_lanes);
      encode_fp4_across<S>(x, most_across, chunk.multipliers, codes, code_stride);
      background.step();
      break;
    }
#endif
    encode_group<S, rounding>(x, random, i, chunk.multipliers, codes);
  }
  if (all_finite(chunk, chunk_blocks<S>)) return;
  for (int b = 0; b < chunk_blocks<S>; ++b) {
    if (float32::is_finite(chunk.amax[b])) continue;
    std::memset(codes + b % across_lines * code_stride + b / across_lines * S::block_bytes,
                S::Format::poison_code, S::block_bytes);
  }
}

// The random words of rows, `most_across` from row to row; zeros where there is no element.
inline void load_random(const RandomRows& random, std::int64_t first, std::int64_t rows,
                        std::int64_t lines, std::uint16_t* words) {
  if (rows < across_elements || lines < most_across) {
    std::memset(words, 0, sizeof(AcrossMemory::random));
  }
  std::uint64_t index = random.index + static_cast<std::uint64_t>(first * random.stride);
  for (std::int64_t row = 0; row < lower_of<std::int64_t>(rows, across_elements); ++row) {
    random_words(random.seed, random.offset, index, lines, words);
    index += static_cast<std::uint64_t>(random.stride);
    words += most_across;
  }
}

template <class S, class T, Rounding rounding>
void quantize_across(const QuantizeAcrossTask& across) {
  constexpr int bits = S::Format::bits;
  const QuantizeTask& task = across.lines;
  const std::int64_t steps = ceil_div(task.lines, across_lines) * (across_lines / lane_count);
  const T* x = static_cast<const T*>(task.x);
  T* const copy = reinterpret_cast<T*>(across.memory.copy);
  std::uint8_t* codes = across.memory.codes[across.memory.turn] + across.memory.carried;
  std::uint8_t scales[most_across][most_across / S::block] = {};
  ChunkScales<S> chunk;
  for (std::int64_t e = 0; e < task.elements; e += across_elements) {
    // The next rows of this task, or the first of another.
    const std::int64_t rest = task.elements - e - across_elements;
    const Ahead next = {
        x + across_elements * task.x_stride, task.x_stride * std::int64_t{sizeof(T)},
        lower_of<std::int64_t>(rest, across_elements), task.lines * std::int64_t{sizeof(T)}};
    Background<T> background(rest > 0 ? next : across.ahead, steps, across);
    AcrossAmax<S, T> amax;
    copy_rows<S>(x, task.x_stride, task.elements - e, task.lines, copy, amax);
    if (across.signs) {
      transform_rows<S>(copy, task.elements - e, task.lines, *across.signs, amax);
    }
    if constexpr (rounding == Rounding::stochastic) {
      load_random(across.random, e, task.elements - e, task.lines, across.memory.random);
    }
    for (std::int64_t line = 0; line < task.lines; line += across_lines) {
      for (int b = 0; b < chunk_blocks<S>; b += lane_count) {
        const T* magnitudes = amax[b / across_lines] + line + b % across_lines;
        store_vector(chunk.amax + b, bits_of(load_lanes(magnitudes)));
      }
      if (task.square) join_squares(chunk);
      block_scales<S>(chunk, chunk_blocks<S>, task.rule, task.tensor);
      if constexpr (S::has_tensor_scale) {
        if (task.four_over_six) {
          choose_across<S>(copy + line, task.tensor, task.block_error, chunk);
        }
      }
      encode_across<S, rounding>(copy + line, across.memory.random + line, chunk,
                                 codes + line * AcrossMemory::code_stride + e * bits / 8,
                                 background);
      for (int b = 0; b < chunk_blocks<S>; ++b) {
        scales[line + b % across_lines][e / S::block + b / across_lines] = chunk.bytes[b];
      }
    }
    x += across_elements * task.x_stride;
  }
  const std::int64_t code_bytes = code_row_bytes<S>(task.elements);
  ScaleCursor cursor = task.scales;
  for (std::int64_t line = 0; line < task.lines; ++line, ++cursor.row) {
    store_scales<S>(scales[line], ceil_div(task.elements, S::block), cursor);
  }
  if (across.streams) {
    stream_lines(across.memory.stream, across.memory.stream.lines);
    start_stream(across, code_bytes);
    if (across.is_end) {
      stream_lines(across.memory.stream, across.memory.stream.lines);
      end_streams();
    }
    return;
  }
  std::uint8_t* target = task.codes;
  for (std::int64_t line = 0; line < task.lines; ++line, target += task.code_stride) {
    constexpr std::int64_t all_bytes = most_across * bits / 8;
    if (code_bytes == all_bytes) {
      copy_elements(target, codes, all_bytes);
    } else {
      copy_elements(target, codes, code_bytes);
    }
    codes += AcrossMemory::code_stride;
  }
}

}  // namespace
}  // namespace mxkern::cpu
