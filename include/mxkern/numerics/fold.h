// mxkern/numerics/fold.h: elements of a block as 8-bit floats under the largest scale of their row.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/math.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/format.h"

namespace mxkern {

namespace folding {

// The exponent of a power of two.
constexpr int log2_of(float power) {
  return static_cast<int>(float32::exponent_field(bits_of(power))) - float32::bias;
}

// Octaves below a block's largest element at which a loss is as large as the elements' own last
// places are for most of them: what folding may lose there. See Fold::spread_limit.
inline constexpr int tolerated_loss = 10;

}  // namespace folding

// A row whose blocks have power-of-two scales is rewritten as 8-bit floats under one power of two:
// the elements of a block whose scale lies d octaves below the row's largest are multiplied by
// 2^(base_shift - d) and rounded to the target, and the row stands for the largest scale times
// 2^-base_shift times what it holds.
template <class Format>
struct Fold {
  static_assert(!Format::is_integer, "8-bit floats have no room for 8 significant bits");
  // The target with as many mantissa bits, or else the one with the most octaves.
  using Target = std::conditional_t<Format::mantissa_bits == 3, E4M3, E5M2>;

  // As far up as the largest element can go, so that there is the more room below.
  static constexpr int base_shift = [] {
    int shift = 0;
    while (Format::max_value * float32::exp2(shift + 1) <= Target::max_value) ++shift;
    return shift;
  }();

  // The largest d for which every code keeps its value: then the smallest element lies on the
  // smallest of the target.
  static constexpr int exact_spread = base_shift + folding::log2_of(Format::min_subnormal) -
                                      folding::log2_of(Target::min_subnormal);

  // The largest d for which what an element loses, at most half the target's smallest element, is
  // at most 2^-10 times the power of two of its block's largest element: 8 octaves for E4M3.
  static constexpr int lossy_spread = base_shift + Format::max_exponent -
                                      (folding::log2_of(Target::min_subnormal) - 1) -
                                      folding::tolerated_loss;

  // The spread of the scales of a row up to which folding it is within its contract.
  static constexpr int spread_limit = higher_of(exact_spread, lossy_spread);
  static constexpr bool is_exact = spread_limit == exact_spread;
};

// Whether the elements of a scheme fit into 8-bit floats under powers of two, and its blocks into
// what kernels fold at a time.
template <class S>
inline constexpr bool scheme_can_fold =
    S::block == 32 && S::ScaleFormat::is_power_of_two&& is_ocp_float<typename S::Format>;

// The code that an element has in the target, `distance` octaves below its row's largest scale:
// rounded to nearest, ties to even. NaN stays NaN, Inf stays Inf.
template <class Format>
MXKERN_HOST_DEVICE constexpr std::uint8_t fold_code(std::uint8_t code, unsigned distance) {
  using Target = typename Fold<Format>::Target;
  if constexpr (Format::specials == Specials::ieee) {
    constexpr std::uint8_t infinity = Format::max_code + 1;
    if ((code & Format::magnitude_mask) == infinity) return code;
  }
  // Beyond 64 octaves nothing is left of any element.
  const int down = static_cast<int>(distance < 64u ? distance : 64u);
  return encode<Target>(decode<Format>(code) * float32::exp2(Fold<Format>::base_shift - down));
}

static_assert(Fold<E4M3>::base_shift == 0 && Fold<E4M3>::spread_limit == 8);
static_assert(Fold<E5M2>::base_shift == 0 && Fold<E5M2>::spread_limit == 22);
static_assert(Fold<E2M1>::base_shift == 13 && Fold<E2M1>::spread_limit == 28);
static_assert(Fold<E2M3>::base_shift == 5 && Fold<E2M3>::spread_limit == 11);
static_assert(Fold<E3M2>::base_shift == 11 && Fold<E3M2>::spread_limit == 23);
static_assert(Fold<E2M1>::is_exact && Fold<E2M3>::is_exact && Fold<E3M2>::is_exact);
static_assert(!Fold<E4M3>::is_exact && !Fold<E5M2>::is_exact);
static_assert(fold_code<E4M3>(encode<E4M3>(448.0f), 3) == encode<E4M3>(56.0f));
static_assert(fold_code<E2M1>(encode<E2M1>(-0.5f), 28) == 0x81);

}  // namespace mxkern
