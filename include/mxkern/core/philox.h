// mxkern/core/philox.h: Philox4x32-7, the counter-based generator behind stochastic rounding.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <cstdint>

#include "mxkern/core/platform.h"

namespace mxkern {

struct Philox4 {
  std::uint32_t lane[4];

  // Returns one of the eight 16-bit words that the four lanes hold, the lower half of a lane first.
  MXKERN_HOST_DEVICE constexpr std::uint32_t half(std::uint32_t i) const {
    return lane[i / 2] >> 16 * (i % 2) & 0xFFFFu;
  }
};

// The constants of the generator.
struct Philox {
  static constexpr int rounds = 7;    // the fewest with which it passes BigCrush
  static constexpr int elements = 8;  // of a tensor that share a call: 16 bits each
  static constexpr std::uint32_t multiplier0 = 0xD2511F53u, multiplier1 = 0xCD9E8D57u;
  static constexpr std::uint32_t step0 = 0x9E3779B9u, step1 = 0xBB67AE85u;  // of the keys
};

// The keys of all rounds.
struct PhiloxKeys {
  std::uint32_t key0[Philox::rounds];
  std::uint32_t key1[Philox::rounds];

  static constexpr PhiloxKeys of(std::uint64_t seed) {
    PhiloxKeys keys = {};
    for (std::uint32_t i = 0; i < Philox::rounds; ++i) {
      keys.key0[i] = static_cast<std::uint32_t>(seed) + i * Philox::step0;
      keys.key1[i] = static_cast<std::uint32_t>(seed >> 32) + i * Philox::step1;
    }
    return keys;
  }
  friend constexpr bool operator==(const PhiloxKeys&, const PhiloxKeys&) = default;
};

// Four 32-bit words for a 64-bit key and a 128-bit counter, given as its lower and upper half.
MXKERN_HOST_DEVICE constexpr Philox4 philox4x32(std::uint64_t key, std::uint64_t counter_low,
                                                std::uint64_t counter_high) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_low);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_high);
  std::uint32_t c3 = static_cast<std::uint32_t>(counter_high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < Philox::rounds; ++round) {
    const std::uint64_t p0 = static_cast<std::uint64_t>(Philox::multiplier0) * c0;
    const std::uint64_t p1 = static_cast<std::uint64_t>(Philox::multiplier1) * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += Philox::step0;
    k1 += Philox::step1;
  }
  return {{c0, c1, c2, c3}};
}

// The word of one element of a tensor, of 16 bits: the same for every path that visits the element.
MXKERN_HOST_DEVICE constexpr std::uint32_t philox_word(std::uint64_t seed, std::uint64_t offset,
                                                       std::uint64_t index) {
  const Philox4 words = philox4x32(seed, index / Philox::elements, offset);
  return words.half(static_cast<std::uint32_t>(index % Philox::elements));
}

// The published known-answer vector for key 0 and counter 0.
static_assert(philox4x32(0, 0, 0).lane[0] == 0x5F6FB709u);
static_assert(philox4x32(0, 0, 0).lane[3] == 0x4F730A48u);
static_assert(philox_word(0, 0, 0) == 0xB709u && philox_word(0, 0, 7) == 0x4F73u);

}  // namespace mxkern
