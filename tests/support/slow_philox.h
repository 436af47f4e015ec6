// tests/support/slow_philox.h: Philox4x32 of any number of rounds, from the paper's drawing, and
// the words of elements from the definition of stochastic rounding.
#pragma once

#include <array>
#include <cstdint>

namespace mxkern::test {

using Words4 = std::array<std::uint32_t, 4>;

// One round: two 32 x 32 bit products, halves crossed over, keys mixed in.
inline Words4 slow_philox_round(const Words4& c, std::uint32_t k0, std::uint32_t k1) {
  const unsigned __int128 left = static_cast<unsigned __int128>(0xD2511F53u) * c[0];
  const unsigned __int128 right = static_cast<unsigned __int128>(0xCD9E8D57u) * c[2];
  const auto high = [](unsigned __int128 p) { return static_cast<std::uint32_t>(p >> 32); };
  const auto low = [](unsigned __int128 p) { return static_cast<std::uint32_t>(p); };
  return {high(right) ^ c[1] ^ k0, low(right), high(left) ^ c[3] ^ k1, low(left)};
}

// The counter is given as its lower and upper half.
inline Words4 slow_philox(int rounds, std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  Words4 words = {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                  static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
  for (std::uint64_t round = 0; round < static_cast<std::uint64_t>(rounds); ++round) {
    words = slow_philox_round(words, static_cast<std::uint32_t>(key + round * 0x9E3779B9u),
                              static_cast<std::uint32_t>((key >> 32) + round * 0xBB67AE85u));
  }
  return words;
}

// The result of 128 bits is a row of eight words of 16, the lowest first.
inline std::uint32_t slow_random_word(std::uint64_t seed, std::uint64_t offset,
                                      std::uint64_t index) {
  const Words4 words = slow_philox(7, seed, index / 8, offset);
  const int place = static_cast<int>(index % 8);
  return place % 2 == 0 ? words[place / 2] % 65536 : words[place / 2] / 65536;
}

}  // namespace mxkern::test
