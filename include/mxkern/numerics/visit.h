// mxkern/numerics/visit.h: from a run-time scheme to its type, and the facts of a scheme as values.
#pragma once

#include "mxkern/numerics/scheme.h"

namespace mxkern {

// Calls visitor(SchemeType{}) for the scheme.
template <class Visitor>
constexpr decltype(auto) visit(Scheme scheme, Visitor&& visitor) {
  switch (scheme) {
#define MXKERN_CASE(Type) \
  case Type::id: return visitor(Type{});
    MXKERN_FOR_EACH_SCHEME(MXKERN_CASE)
#undef MXKERN_CASE
  }
  return visitor(MXKERN_ANY_SCHEME{});
}

#define MXKERN_ID(Type) Type::id,
inline constexpr Scheme all_schemes[] = {MXKERN_FOR_EACH_SCHEME(MXKERN_ID)};
#undef MXKERN_ID

// The facts of a scheme.
struct SchemeFacts {
  const char* name;
  const char* format;
  const char* scale_format;
  int bits;                // of an element
  int block;               // elements that share a scale
  int block_bytes;         // of the packed codes of a block
  bool has_tensor_scale;   // a float32 decode multiplier goes with the tensor
  float max_value;         // of an element, before its scale
  float min_subnormal;     // the smallest positive element, before its scale
  std::uint8_t nan_scale;  // the scale byte of a poisoned block
  bool scales_are_powers;  // of two
};

constexpr SchemeFacts facts_of(Scheme scheme) {
  return visit(scheme, [](auto type) {
    using S = decltype(type);
    using F = typename S::Format;
    return SchemeFacts{S::name,
                       F::name,
                       S::ScaleFormat::name,
                       F::bits,
                       S::block,
                       S::block_bytes,
                       S::has_tensor_scale,
                       F::max_value,
                       F::min_subnormal,
                       S::ScaleFormat::nan_byte,
                       S::ScaleFormat::is_power_of_two};
  });
}

constexpr const char* name_of(Scheme scheme) { return facts_of(scheme).name; }

}  // namespace mxkern
