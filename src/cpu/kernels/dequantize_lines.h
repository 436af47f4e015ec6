// cpu/kernels/dequantize_lines.h: lines of codes and scales to a plain type.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/bfloat16_pairs.h"
#include "cpu/kernels/chunk.h"
#include "cpu/kernels/code_lanes.h"
#include "cpu/kernels/code_pairs.h"
#include "cpu/kernels/decode_codes.h"
#include "cpu/kernels/decode_halves.h"
#include "cpu/kernels/short_floats.h"
#include "cpu/kernels/streamed_bytes.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/scheme.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cpu {
namespace {

// What the elements of each block are multiplied with, one after the other.
template <class S>
struct ChunkFactors {
  alignas(64) std::uint8_t bytes[chunk_blocks<S>];
  alignas(64) float first[chunk_blocks<S>];
  alignas(64) float second[chunk_blocks<S>];
};

// Codes of 8 bits have other ways.
template <class Format>
inline constexpr bool decodes_short_floats = are_short_floats<Format>&& Format::bits < 8;

// The largest scale that exact values' factors have room for.
template <class Format>
constexpr std::uint32_t most_exact() {
  if constexpr (decodes_short_floats<Format>) return 254 - short_float_exponent<Format>;
  return 254;
}

// E8M0: both factors are normal numbers. Processors
// are slow with subnormal operands, and the scale of every block of zeros is the subnormal 2^-127.
// The product with the first factor is exact, so that the value is still rounded once.
// Other formats: the block's scale, then the tensor's.
// Returns whether the second factors are all 1: then every value is exact, in bfloat16 too, and
// no NaN arises but the one of the numerics.
template <class S>
[[gnu::noinline]] bool chunk_factors(ChunkFactors<S>& chunk, float tensor_scale) {
  using ScaleFormat = typename S::ScaleFormat;
  bool exact = ScaleFormat::is_power_of_two;
  for (int b = 0; b < chunk_blocks<S>; ++b) {
    if constexpr (!ScaleFormat::is_power_of_two) {
      chunk.first[b] = ScaleFormat::decode(chunk.bytes[b]);
      chunk.second[b] = tensor_scale;
    } else {
      constexpr std::uint32_t small = 64;
      const std::uint32_t byte = chunk.bytes[b];
      const std::uint32_t biased = byte < small ? byte + small : byte;
      const std::uint32_t bits = biased << float32::mantissa_bits;
      chunk.first[b] = float_of(byte == E8M0::nan_byte ? float32::nan_bits : bits);
      chunk.second[b] = byte < small ? 0x1p-64f : 1.0f;
      exact &=
          byte >= small && (byte <= most_exact<typename S::Format>() || byte == E8M0::nan_byte);
    }
  }
  return exact;
}

#if defined(__AVX2__) && !defined(__AVX512F__)
// Even and odd elements, in order; of bfloat16 exact ones.
[[gnu::always_inline]] inline void store_in_order(bfloat16* out, FloatPairs values) {
  store_exact_pairs(out, values);
}

[[gnu::always_inline]] inline void store_in_order(float* out, FloatPairs values) {
  const __m256 low = _mm256_unpacklo_ps(__m256(values.even), __m256(values.odd));
  const __m256 high = _mm256_unpackhi_ps(__m256(values.even), __m256(values.odd));
  store_vector(out, _mm256_castps256_ps128(low));
  store_vector(out + 4, _mm256_castps256_ps128(high));
  store_vector(out + 8, _mm256_extractf128_ps(low, 1));
  store_vector(out + 12, _mm256_extractf128_ps(high, 1));
}

[[gnu::always_inline]] inline void store_in_order(float16* out, FloatPairs values) {
  const auto halves = [](__m256 lanes) {
    return _mm256_cvtps_ph(lanes, _MM_FROUND_TO_NEAREST_INT);
  };
  const __m128i low = halves(_mm256_unpacklo_ps(__m256(values.even), __m256(values.odd)));
  const __m128i high = halves(_mm256_unpackhi_ps(__m256(values.even), __m256(values.odd)));
  store_vector(out, _mm_unpacklo_epi64(low, high));
  store_vector(out + 8, _mm_unpackhi_epi64(low, high));
}

// Decodes a step of values of less than 8 bits: exact ones, or those of a scheme whose scales are
// small numbers.
template <class S, bool exact, class T>
[[gnu::always_inline]] inline void decode_short_floats(const std::uint8_t* codes,
                                                       const float* first, const float* second,
                                                       T* out) {
  using Format = typename S::Format;
  constexpr int half = step_elements / 2;
  for (int i = 0; i < 2; ++i) {
    const int block = i * half / S::block;
    const FloatLanes factor =
        broadcast<FloatLanes>(first[block] * float32::exp2(short_float_exponent<Format>));
    FloatPairs values = load_short_floats<Format>(codes + i * half * Format::bits / 8);
    values = {values.even * factor, values.odd * factor};
    if constexpr (!exact) {
      values = {with_one_nan(values.even * second[block]),
                with_one_nan(values.odd * second[block])};
    }
    store_in_order(out + i * half, values);
  }
}
#endif

// Decodes step_elements elements; the factors are those of the first one's block and on.
template <class S, bool exact, class T>
[[gnu::always_inline]] inline void decode_step(const std::uint8_t* codes, const float* first,
                                               const float* second, T* out) {
  using Format = typename S::Format;
#if defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr ((exact || !S::ScaleFormat::is_power_of_two) && decodes_short_floats<Format>) {
    return decode_short_floats<S, exact>(codes, first, second, out);
  }
#endif
  BitLanes lanes[step_registers];
  widen(load_codes<Format::bits>(codes), lanes);
  for (int i = 0; i < step_registers; ++i) {
    const int block = i * lane_count / S::block;
    FloatLanes value = decode_codes<Format>(lanes[i]) * first[block];
    if constexpr (!exact) value = with_one_nan(value * second[block]);
    store_lanes(out + i * lane_count, value);
  }
}

// The same for bfloat16, in pairs.
template <class S, bool exact>
[[gnu::always_inline]] inline void decode_step(const std::uint8_t* codes, const float* first,
                                               const float* second, bfloat16* out) {
  using Format = typename S::Format;
#if defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr (S::block == step_elements / 2 && Format::bits == 4 && !Format::is_integer) {
    return decode_two_blocks<Format>(codes, first, second, out);
  }
  if constexpr (exact && decodes_short_floats<Format>) {
    return decode_short_floats<S, exact>(codes, first, second, out);
  }
#endif
#if defined(__AVX2__)
  if constexpr (exact && is_fp8<Format> && S::block % 32 == 0) {
    bool is_done = true;
    for (int i = 0; i < step_elements; i += 32) {
      is_done = is_done && decode_block<Format>(codes + i, first[i / S::block], out + i);
    }
    if (is_done) return;
  }
#endif
  constexpr int half = step_elements / 2;
  for (int i = 0; i < 2; ++i) {
    const BitLanes pairs = load_code_pairs<Format::bits>(codes + i * half * Format::bits / 8);
    const int block = i * half / S::block;
    const FloatLanes factors = pair_factors<S::block>(first + block);
    FloatPairs values = {decode_codes<Format>(pairs) * factors,
                         decode_codes<Format>(pairs >> Format::bits) * factors};
    if constexpr (exact) {
      store_exact_pairs(out + i * half, values);
    } else {
      const FloatLanes more = pair_factors<S::block>(second + block);
      values = {with_one_nan(values.even * more), with_one_nan(values.odd * more)};
      store_pairs(out + i * half, values);
    }
  }
}

// Decodes one line of at most a chunk; the factors are those of its first block and on.
template <class S, bool exact, class T>
[[gnu::always_inline]] inline void decode_line(const std::uint8_t* codes, const float* first,
                                               const float* second, std::int64_t elements, T* out) {
  constexpr int bits = S::Format::bits;
  constexpr std::int64_t step_bytes = step_elements * bits / 8;
  std::int64_t i = 0;
  for (; i + step_elements <= elements; i += step_elements) {
    // What is written past the caches would else be all that the memory does meanwhile.
    constexpr std::int64_t bytes_ahead = 2048;
    __builtin_prefetch(codes + i * bits / 8 + bytes_ahead);
    decode_step<S, exact>(codes + i * bits / 8, first + i / S::block, second + i / S::block,
                          out + i);
  }
  // The rest, padded to a whole step.
  const std::int64_t bytes = code_row_bytes<S>(elements);
  for (; i < elements; i += step_elements) {
    std::uint8_t last_codes[step_elements] = {};
    T last_out[step_elements];
    copy_elements(last_codes, codes + i * bits / 8, lower_of(step_bytes, bytes - i * bits / 8));
    decode_step<S, exact>(last_codes, first + i / S::block, second + i / S::block, last_out);
    copy_elements(out + i, last_out, lower_of<std::int64_t>(step_elements, elements - i));
  }
}

template <class S, class T>
void dequantize_lines(const DequantizeTask& task) {
  const ChunkShape shape = ChunkShape::of<S>(task.elements);
  ChunkFactors<S> chunk;
  std::memset(chunk.bytes, E8M0::bias, sizeof(chunk.bytes));  // blocks that no line has are exact
  StreamedBytes<chunk_blocks<S> * S::block * sizeof(T)> streamed;
  const bool streams = task.streams && shape.lines == 1;
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
      const bool exact = chunk_factors<S>(chunk, task.tensor_scale);
      for (std::int64_t line = 0; line < lines; ++line) {
        const std::uint8_t* codes =
            task.codes + (first + line) * task.code_stride + first_block * S::block_bytes;
        const float* factors = chunk.first + line * shape.line_blocks;
        const float* more = chunk.second + line * shape.line_blocks;
        T* out = static_cast<T*>(task.out) + (first + line) * task.out_stride + start;
        if (streams) {
          if (start == 0) streamed.begin(out);
          out = reinterpret_cast<T*>(streamed.place());
        }
        if (exact) {
          if constexpr (S::ScaleFormat::is_power_of_two)
            decode_line<S, true>(codes, factors, more, elements, out);
        } else {
          decode_line<S, false>(codes, factors, more, elements, out);
        }
        if (streams) streamed.write(elements * static_cast<std::int64_t>(sizeof(T)));
      }
    }
    if (streams) streamed.end();
  }
  if (streams) end_streams();
}

}  // namespace
}  // namespace mxkern::cpu
