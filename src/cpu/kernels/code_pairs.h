// cpu/kernels/code_pairs.h: packed codes to 32-bit lanes, two neighbours a lane.
#pragma once

#include <cstdint>

#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// Bytes to lanes. GCC's own conversion from bytes goes through memory.
[[gnu::always_inline]] inline BitLanes widen_bytes(const std::uint8_t* bytes) {
#if defined(__AVX512F__)
  return BitLanes(_mm512_cvtepu8_epi32(load_vector<__m128i>(bytes)));
#elif defined(__AVX2__)
  return BitLanes(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
#else
  return __builtin_convertvector(load_vector<ByteLanes>(bytes), BitLanes);
#endif
}

// A lane's even code in the low bits, its odd code right above; what is above both is arbitrary.
template <int Bits>
[[gnu::always_inline]] inline BitLanes load_code_pairs(const std::uint8_t* bytes) {
  if constexpr (Bits == 8) {
    return __builtin_convertvector(load_vector<HalfLanes>(bytes), BitLanes);
  } else if constexpr (Bits == 4) {
    return widen_bytes(bytes);
  } else {
    static_assert(Bits == 6, "4-, 6- and 8-bit codes exist");
#if defined(__AVX512F__)
    // Three bytes hold two pairs: lanes 2i and 2i + 1 read bytes 3i.. and 3i + 1.., and the odd
    // lane drops the four bits that belong to its neighbour.
    const __m512i packed = _mm512_castsi256_si512(_mm256_maskz_loadu_epi8(0x00FFFFFFu, bytes));
    const __m512i index =
        _mm512_set_epi32(0x17161716, 0x16151615, 0x14131413, 0x13121312, 0x11101110, 0x100F100F,
                         0x0E0D0E0D, 0x0D0C0D0C, 0x0B0A0B0A, 0x0A090A09, 0x08070807, 0x07060706,
                         0x05040504, 0x04030403, 0x02010201, 0x01000100);
    const __m512i spread = _mm512_permutexvar_epi8(index, packed);
    return (BitLanes)_mm512_srlv_epi32(spread, _mm512_set1_epi64(0x0000000400000000));
#elif defined(__AVX2__)
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
    const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + 4));
    const __m256i index = _mm256_set_epi32(0x07060706, 0x06050605, 0x04030403, 0x03020302,
                                           0x05040504, 0x04030403, 0x02010201, 0x01000100);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), index);
    return (BitLanes)_mm256_srlv_epi32(spread, _mm256_set1_epi64x(0x0000000400000000));
#else
    BitLanes pairs;
    for (int i = 0; i < lane_count / 2; ++i) {
      const std::uint32_t word =
          bytes[3 * i] | bytes[3 * i + 1] << 8 | static_cast<std::uint32_t>(bytes[3 * i + 2]) << 16;
      pairs[2 * i] = word;
      pairs[2 * i + 1] = word >> 12;
    }
    return pairs;
#endif
  }
}

}  // namespace
}  // namespace mxkern::cpu
