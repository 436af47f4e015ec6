// cpu/kernels/four_over_six.h: NVFP4's choice, per block, between two scales.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/block_scales.h"
#include "cpu/kernels/lanes_memory.h"
#include "cpu/kernels/transpose.h"
#include "mxkern/numerics/tensor_scale.h"

namespace mxkern::cpu {
namespace {

// a * b + c, rounded once.
[[gnu::always_inline]] inline FloatLanes fused_multiply_add(FloatLanes a, FloatLanes b,
                                                            FloatLanes c) {
#if defined(__AVX512F__)
  return FloatLanes(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
#elif defined(__FMA__)
  return FloatLanes(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
#else
  for (int i = 0; i < lane_count; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

// What decodes from the code of a magnitude. Adding 3/2 * 2^mantissa_bits steps of its binade, or
// of the lowest one with normal numbers, rounds to a multiple of a step, ties to even codes.
template <class Format>
[[gnu::always_inline]] inline FloatLanes rounded_magnitude(FloatLanes magnitude) {
  constexpr int steps = float32::mantissa_bits - Format::mantissa_bits;
  constexpr std::uint32_t exponent_mask = float32::infinity_bits, half = 1u << 22;
  constexpr float normal_from = Format::min_subnormal * (1 << Format::mantissa_bits);
  const FloatLanes held = lower_of<FloatLanes>(magnitude, broadcast<FloatLanes>(Format::max_value));
  const FloatLanes normal = higher_of<FloatLanes>(held, broadcast<FloatLanes>(normal_from));
  const BitLanes binade = bits_of(normal) & exponent_mask;
  const FloatLanes shift = float_of<BitLanes>(binade + ((steps << float32::mantissa_bits) | half));
  return (held + shift) - shift;
}

// One of the two scales of lane_count blocks, one a lane, and its error so far.
template <class Format>
struct Candidate {
  BitLanes bytes;
  FloatLanes scales;
  FloatLanes multipliers;
  FloatLanes error = {};

  [[gnu::always_inline]] Candidate(FloatLanes scale, const TensorScale& tensor)
      : bytes(encode_lanes<E4M3>(scale)),
        scales(decode_lanes<E4M3>(bytes)),
        multipliers(multipliers_of(scales, tensor)) {}

  // nvfp4_add_error for one element of each block, of its magnitude: errors have no sign.
  [[gnu::always_inline]] void add(FloatLanes magnitude, float encode, BlockError kind) {
    const FloatLanes decoded = rounded_magnitude<Format>(magnitude * multipliers) * scales;
    const FloatLanes difference =
        fused_multiply_add(magnitude, broadcast<FloatLanes>(encode), -decoded);
    if (is_of_magnitudes(kind)) {
      error += float_of<BitLanes>(bits_of(difference) & float32::magnitude_mask);
    } else {
      error = fused_multiply_add(difference, difference, error);
    }
  }
};

// The choice between both of lane_count blocks, one a lane: the scale for 4 only where its error is
// strictly smaller. Errors are those of rounding to nearest, also where codes will be rounded
// stochastically: a choice that saw the random bits would bias the codes' mean.
template <class S>
class FourOrSix {
 public:
  // Of the blocks of a chunk from `first` on: nvfp4_four_over_six, as if what is not finite were 0.
  [[gnu::always_inline]] FourOrSix(const ChunkScales<S>& chunk, int first,
                                   const TensorScale& tensor, BlockError kind)
      : FourOrSix(load_vector<BitLanes>(chunk.amax + first), tensor, kind) {}

  // The next element of each block.
  [[gnu::always_inline]] void add(FloatLanes value) {
    const auto magnitude = float_of<BitLanes>(bits_of(value) & float32::magnitude_mask);
    six_.add(magnitude, encode_, kind_);
    four_.add(magnitude, encode_, kind_);
  }

  [[gnu::always_inline]] void store(ChunkScales<S>& chunk, int first) const {
    const auto is_four = BitLanes(four_.error < six_.error);
    const auto choose = [&](BitLanes of_four, BitLanes of_six) {
      return (of_four & is_four) | (of_six & ~is_four);
    };
    const BitLanes poison = broadcast<BitLanes>(std::uint32_t{S::ScaleFormat::nan_byte});
    const BitLanes bytes = (choose(four_.bytes, six_.bytes) & finite_) | (poison & ~finite_);
    store_vector(chunk.bytes + first, __builtin_convertvector(bytes, ByteLanes));
    const BitLanes multipliers = choose(bits_of(four_.multipliers), bits_of(six_.multipliers));
    store_vector(chunk.multipliers + first, multipliers & finite_);
  }

 private:
  [[gnu::always_inline]] FourOrSix(BitLanes amax, const TensorScale& tensor, BlockError kind)
      : finite_(BitLanes(amax <= broadcast<BitLanes>(float32::largest_bits))),
        six_(base_of(amax & finite_, tensor), tensor),
        four_(1.5f * base_of(amax & finite_, tensor), tensor),
        encode_(tensor.encode),
        kind_(kind) {}

  [[gnu::always_inline]] static FloatLanes base_of(BitLanes amax, const TensorScale& tensor) {
    return lower_of<FloatLanes>(float_of<BitLanes>(amax) / E2M1::max_value * tensor.encode,
                                broadcast<FloatLanes>(E4M3::max_value));
  }

  BitLanes finite_;
  Candidate<typename S::Format> six_;
  Candidate<typename S::Format> four_;
  float encode_;
  BlockError kind_;
};

// lane_count elements of a line from `start` on; what the line does not have is zero.
template <class T>
[[gnu::always_inline]] inline FloatLanes load_padded(const T* line, std::int64_t start,
                                                     std::int64_t elements) {
  if (start + lane_count <= elements) return load_lanes(line + start);
  T padded[lane_count] = {};
  copy_elements(padded, line + start, elements - start);
  return load_lanes(padded);
}

// Replaces the scales of a chunk by the better of the two candidates. Blocks lie across lanes, so
// that each sums its elements in order; those of a square row by row of the tensor, which go
// across the lines where these are its columns: then there is memory for that.
template <class S, class T>
[[gnu::noinline]] void choose_four_or_six(const T* x, std::int64_t x_stride, std::int64_t lines,
                                          std::int64_t elements, int line_blocks, bool square,
                                          std::byte* across, TensorScale tensor, BlockError kind,
                                          ChunkScales<S>& chunk, int blocks) {
  for (int first = 0; first < blocks; first += lane_count) {
    FourOrSix<S> choice(chunk, first, tensor, kind);
    // The same elements of lane_count blocks, a block a lane.
    const auto load = [&](BitLanes(&values)[lane_count], std::int64_t row, int element) {
      for (int lane = 0; lane < lane_count; ++lane) {
        const int index = first + lane;
        const std::int64_t line = square ? row : index / line_blocks;
        const int block = square ? index : index % line_blocks;
        const std::int64_t start = block * S::block + element;
        const bool exists = line < lines && start < elements;
        values[lane] =
            exists ? bits_of(load_padded(x + line * x_stride, start, elements)) : BitLanes{};
      }
      transpose_square(values);
    };
    const std::int64_t rows = square ? lines : 1;
    if (across != nullptr) {
      using Rows = BitLanes[S::block][lane_count];
      static_assert(sizeof(Rows) <= choice_bytes);
      Rows& values = *reinterpret_cast<Rows*>(across);
      for (int element = 0; element < S::block; element += lane_count) {
        for (std::int64_t row = 0; row < rows; ++row) load(values[row], row, element);
        for (int i = 0; i < lane_count; ++i) {
          for (std::int64_t row = 0; row < rows; ++row)
            choice.add(float_of<BitLanes>(values[row][i]));
        }
      }
    } else {
      for (std::int64_t row = 0; row < rows; ++row) {
        for (int element = 0; element < S::block; element += lane_count) {
          BitLanes values[lane_count];
          load(values, row, element);
          for (const BitLanes& value : values) choice.add(float_of<BitLanes>(value));
        }
      }
    }
    choice.store(chunk, first);
  }
}

}  // namespace
}  // namespace mxkern::cpu
