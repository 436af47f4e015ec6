// cpu/kernels/decode_codes.h: the values of codes in 32-bit lanes.
// Only files in cpu/instances/ may include it.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "cpu/lanes.h"
#include "mxkern/numerics/codec.h"

namespace mxkern::cpu {
namespace {

#if defined(__AVX512F__)
// The values of all codes of a short format but for its sign.
template <class Format, int Count>
struct ValueTable {
  alignas(64) float values[Count];
  constexpr ValueTable() {
    for (int i = 0; i < Count; ++i) values[i] = decode<Format>(static_cast<std::uint8_t>(i));
  }
};
#endif

// decode_lanes; where a format's values fit into registers, by looking them up.
template <class Format>
[[gnu::always_inline]] inline FloatLanes decode_codes(BitLanes codes) {
#if defined(__AVX512F__)
  const __m512i index = __m512i(codes);
  if constexpr (Format::bits == 4) {
    static constexpr ValueTable<Format, 16> table;
    return FloatLanes(_mm512_permutexvar_ps(index, _mm512_load_ps(table.values)));
  } else if constexpr (Format::bits == 6 && !Format::is_integer) {
    static constexpr ValueTable<Format, 32> table;
    const __m512 magnitude = _mm512_permutex2var_ps(_mm512_load_ps(table.values), index,
                                                    _mm512_load_ps(table.values + 16));
    const BitLanes sign = codes << 26 & float32::sign_mask;
    return float_of<BitLanes>(BitLanes(magnitude) | sign);
  }
#endif
  return decode_lanes<Format>(codes);
}

}  // namespace
}  // namespace mxkern::cpu
