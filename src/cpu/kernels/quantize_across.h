// cpu/kernels/quantize_across.h: lines that lie across memory, as columns do, to codes and scales.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/bfloat16_pairs.h"
#include "cpu/kernels/block_amax.h"
#include "cpu/kernels/block_scales.h"
#include "cpu/kernels/halves_across.h"
#include "cpu/kernels/nearest_lanes.h"
#include "cpu/kernels/word_lanes.h"
#include "cpu/prefetch.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cpu {
namespace {

// What is treated together: as many elements of as many lines. Elements are compared, scaled and
// encoded as they lie, a line a lane; only codes change their places.
inline constexpr int across_lines = 32;
inline constexpr int across_elements = 32;

inline constexpr int most_across = AcrossMemory::most;

// Blocks of a line in a chunk; those of all lines lie side by side in ChunkScales.
template <class S>
inline constexpr int across_blocks = across_elements / S::block;

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

// Copies rows of a chunk; what there is not becomes zero.
template <class T>
[[gnu::always_inline]] inline void copy_chunk(const T* x, std::int64_t stride, std::int64_t rows,
                                              std::int64_t columns, T* copy) {
  const bool whole = rows >= across_elements && columns >= across_lines;
  for (int row = 0; row < across_elements; ++row, x += stride, copy += most_across) {
    if (whole) {
      copy_elements(copy, x, across_lines);
    } else {
      std::memset(copy, 0, across_lines * sizeof(T));
      if (row < rows) copy_elements(copy, x, lower_of<std::int64_t>(columns, across_lines));
    }
  }
}

// The largest magnitudes of all blocks of a chunk.
template <class S, class T>
[[gnu::always_inline]] inline void across_amax(const T* x, std::uint32_t* amax) {
  using Words = std::int32_t __attribute__((vector_size(4 * lane_count)));
  using Halves = std::int16_t __attribute__((vector_size(4 * lane_count)));
  using Magnitudes = std::conditional_t<sizeof(T) == 4, Words, Halves>;
  constexpr int width = sizeof(Magnitudes) / sizeof(T);
  const auto sign =
      Magnitudes(sizeof(T) == 4 ? Words{} - 0x7FFFFFFF - 1 : Words(Halves{} - 0x7FFF - 1));
  for (int block = 0; block < across_blocks<S>; ++block, x += S::block * most_across) {
    Magnitudes largest[across_lines / width] = {};
    for (int e = 0; e < S::block; ++e) {
      for (int i = 0; i < across_lines / width; ++i) {
        const auto magnitude = load_vector<Magnitudes>(x + e * most_across + i * width) & ~sign;
        largest[i] = higher_of<Magnitudes>(largest[i], magnitude);
      }
    }
    T lines[across_lines];
    std::memcpy(lines, largest, sizeof(lines));
    for (int i = 0; i < across_lines; i += lane_count) {
      store_vector(amax + block * across_lines + i, bits_of(load_lanes(lines + i)));
    }
  }
}

// Appends code number `i` of Bits bits to the words that began with code 0.
template <int Bits>
[[gnu::always_inline]] inline void append_code(BitLanes* words, int i, BitLanes code) {
  const int position = i * Bits;
  words[position / 32] |= code << (position % 32);
  if (position % 32 + Bits > 32) words[position / 32 + 1] |= code >> (32 - position % 32);
}

// Encodes the lines of one register.
template <class S, class T>
[[gnu::always_inline]] inline void encode_group(const T* x, int group, const float* multipliers,
                                                std::uint8_t* codes) {
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
#pragma GCC unroll 16
    for (int i = 0; i < elements; ++i) {
      const FloatLanes value = load_across(x + (first + i) * most_across, group) * factor;
      append_code<Format::bits>(fill, i, nearest_lanes<Format>(value));
    }
    for (int i = 0; i < filled; ++i) words[w + i] = fill[i];
  }
  store_lines(words, order, codes, AcrossMemory::code_stride);
}

// Asks for memory in shares.
class Prefetcher {
 public:
  Prefetcher(const Ahead& ahead, std::int64_t shares)
      : start_(static_cast<const std::byte*>(ahead.start)),
        stride_(ahead.stride),
        left_(ahead.rows),
        // The last byte may be in one line more.
        bytes_(ahead.bytes +
               reinterpret_cast<std::uintptr_t>(ahead.start) % AcrossMemory::cache_line),
        share_(ceil_div(ahead.rows, shares)) {}

  [[gnu::always_inline]] void step() {
    const std::int64_t rows = lower_of(share_, left_);
    prefetch_rows(start_, stride_, rows, bytes_);
    start_ += rows * stride_;
    left_ -= rows;
  }

 private:
  const std::byte* start_;
  std::int64_t stride_;
  std::int64_t left_;
  std::int64_t bytes_;
  std::int64_t share_;
};

// Encodes a chunk. Memory is asked for in the meantime.
template <class S, class T>
[[gnu::noinline]] void encode_across(const T* x, const ChunkScales<S>& chunk, std::uint8_t* codes,
                                     Prefetcher& prefetcher) {
  constexpr std::int64_t code_stride = AcrossMemory::code_stride;
  for (int i = 0; i < across_lines / lane_count; ++i) {
    prefetcher.step();
#if defined(__AVX2__) && !defined(__AVX512F__)
    if constexpr (std::is_same_v<T, bfloat16> && encodes_halves<S>) {
      const int line = i * lane_count;
      if (i % 2 == 0 && encode_halves_across<S>(x + line, most_across, chunk.amax + line,
                                                chunk.multipliers + line,
                                                codes + line * code_stride, code_stride)) {
        ++i;
        prefetcher.step();
        continue;
      }
    }
#endif
    encode_group<S>(x, i, chunk.multipliers, codes);
  }
  if (all_finite(chunk, chunk_blocks<S>)) return;
  for (int b = 0; b < chunk_blocks<S>; ++b) {
    if (float32::is_finite(chunk.amax[b])) continue;
    std::memset(codes + b % across_lines * code_stride + b / across_lines * S::block_bytes,
                S::Format::poison_code, S::block_bytes);
  }
}

// Writes a line of the cache past the cache.
[[gnu::always_inline]] inline void stream_line(std::uint8_t* target, const std::uint8_t* source) {
#if defined(__SSE2__)
  for (int i = 0; i < AcrossMemory::cache_line; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(target + i), load_vector<__m128i>(source + i));
  }
#else
  std::memcpy(target, source, AcrossMemory::cache_line);
#endif
}

// Writes codes in whole lines of the cache, and what is no whole line only where lines begin or
// end.
inline void stream_codes(const QuantizeAcrossTask& across, std::int64_t code_bytes) {
  constexpr int cache_line = AcrossMemory::cache_line;
  AcrossMemory& memory = across.memory;
  const std::int64_t bytes = memory.carried + code_bytes;
  std::uint8_t* target = across.lines.codes - memory.carried;
  const auto offset =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(target)) % cache_line;
  const std::int64_t begin = lower_of(offset == 0 ? 0 : cache_line - offset, bytes);
  const std::int64_t end = begin + (bytes - begin) / cache_line * cache_line;
  std::uint8_t* codes = memory.codes;
  for (std::int64_t line = 0; line < across.lines.lines; ++line) {
    if (begin != 0) copy_elements(target, codes, begin);
    for (std::int64_t i = begin; i < end; i += cache_line) stream_line(target + i, codes + i);
    if (across.is_last) {
      copy_elements(target + end, codes + end, bytes - end);
    } else {
      std::uint8_t rest[cache_line];
      std::memcpy(rest, codes + end, sizeof(rest));
      std::memcpy(codes, rest, sizeof(rest));
    }
    target += across.lines.code_stride;
    codes += AcrossMemory::code_stride;
  }
  memory.carried = across.is_last ? 0 : static_cast<int>(bytes - end);
#if defined(__SSE2__)
  if (across.is_last) _mm_sfence();
#endif
}

template <class S, class T>
void quantize_across(const QuantizeAcrossTask& across) {
  constexpr int bits = S::Format::bits;
  const QuantizeTask& task = across.lines;
  const std::int64_t steps = ceil_div(task.lines, across_lines) * (across_lines / lane_count);
  const T* x = static_cast<const T*>(task.x);
  T* const copy = reinterpret_cast<T*>(across.memory.copy);
  std::uint8_t* codes = across.memory.codes + across.memory.carried;
  std::uint8_t scales[most_across][most_across / S::block] = {};
  ChunkScales<S> chunk;
  for (std::int64_t e = 0; e < task.elements; e += across_elements) {
    // The next rows of this task, or the first of another.
    const std::int64_t rest = task.elements - e - across_elements;
    const Ahead next = {
        x + across_elements * task.x_stride, task.x_stride * std::int64_t{sizeof(T)},
        lower_of<std::int64_t>(rest, across_elements), task.lines * std::int64_t{sizeof(T)}};
    Prefetcher prefetcher(rest > 0 ? next : across.ahead, steps);
    for (std::int64_t line = 0; line < task.lines; line += across_lines) {
      copy_chunk(x + line, task.x_stride, task.elements - e, task.lines - line, copy + line);
      across_amax<S>(copy + line, chunk.amax);
      block_scales<S>(chunk, chunk_blocks<S>, task.rule, task.tensor);
      encode_across<S>(copy + line, chunk, codes + line * AcrossMemory::code_stride + e * bits / 8,
                       prefetcher);
      for (int b = 0; b < chunk_blocks<S>; ++b) {
        scales[line + b % across_lines][e / S::block + b / across_lines] = chunk.bytes[b];
      }
    }
    x += across_elements * task.x_stride;
  }
  const std::int64_t code_bytes = code_row_bytes<S>(task.elements);
  ScaleCursor cursor = task.scales;
  for (std::int64_t line = 0; line < task.lines; ++line, ++cursor.row) {
    store_scales(scales[line], ceil_div(task.elements, S::block), cursor);
  }
  if (across.streams) return stream_codes(across, code_bytes);
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
