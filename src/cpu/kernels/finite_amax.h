// cpu/kernels/finite_amax.h: the largest finite magnitude of a line.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/block_amax.h"

namespace mxkern::cpu {
namespace {

// Magnitudes in a whole register, signed: every instruction set has a signed maximum for 16 bits.
using WordLanes = std::int16_t __attribute__((vector_size(4 * lane_count)));
using SignedLanes = std::int32_t __attribute__((vector_size(4 * lane_count)));

template <class T>
struct Magnitude;
template <>
struct Magnitude<float> {
  using Lanes = SignedLanes;
  static constexpr std::int32_t infinity = 0x7F800000;
};
template <>
struct Magnitude<bfloat16> {
  using Lanes = WordLanes;
  static constexpr std::int16_t infinity = 0x7F80;
};
template <>
struct Magnitude<float16> {
  using Lanes = WordLanes;
  static constexpr std::int16_t infinity = 0x7C00;
};

template <class T>
[[gnu::always_inline]] inline typename Magnitude<T>::Lanes finite_magnitude(const T* x) {
  using Lanes = typename Magnitude<T>::Lanes;
  const auto infinity = broadcast<Lanes>(Magnitude<T>::infinity);
  const auto mask =
      static_cast<decltype(Magnitude<T>::infinity)>(sizeof(T) == 4 ? 0x7FFFFFFF : 0x7FFF);
  const Lanes magnitude = load_vector<Lanes>(x) & broadcast<Lanes>(mask);
  return magnitude < infinity ? magnitude : Lanes{};
}

template <class T>
std::uint32_t finite_amax(const void* source, std::int64_t count) {
  using Lanes = typename Magnitude<T>::Lanes;
  constexpr int width = sizeof(Lanes) / sizeof(T);
  constexpr int unrolled = 4;  // independent maxima hide the latency of each
  const T* x = static_cast<const T*>(source);
  Lanes largest[unrolled] = {};
  std::int64_t i = 0;
  for (; i + unrolled * width <= count; i += unrolled * width) {
    for (int u = 0; u < unrolled; ++u) {
      largest[u] = higher_of<Lanes>(largest[u], finite_magnitude(x + i + u * width));
    }
  }
  for (; i < count; i += width) {
    T rest[width] = {};
    copy_elements(rest, x + i, lower_of<std::int64_t>(width, count - i));
    largest[0] = higher_of<Lanes>(largest[0], finite_magnitude(rest));
  }
  std::uint32_t amax = 0;
  for (const Lanes& lanes : largest) {
    T memory[width];
    store_vector(memory, lanes);
    for (const T value : memory) amax = higher_of(amax, bits_of(to_float(value)));
  }
  return amax;
}

}  // namespace
}  // namespace mxkern::cpu
