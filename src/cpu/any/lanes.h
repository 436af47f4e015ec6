// cpu/any/lanes.h: lanes of float64 beside those of float32, and either from and to memory of
// any plain element type. Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/lanes_memory.h"
#include "mxkern/numerics/any_codec.h"

namespace mxkern {
namespace cpu {

inline constexpr int double_count = lane_count / 2;
using DoubleLanes = double __attribute__((vector_size(4 * lane_count)));
using LongLanes = std::uint64_t __attribute__((vector_size(4 * lane_count)));

}  // namespace cpu

template <>
struct Lanes<cpu::DoubleLanes> {
  using Bits = cpu::LongLanes;
};
template <>
struct Lanes<cpu::LongLanes> {
  using Float = cpu::DoubleLanes;
};

namespace cpu {
namespace {

// How elements of type T are computed with.
template <class T>
struct Computed {
  using Word = std::uint32_t;
  using Lane = FloatLanes;
};
template <>
struct Computed<double> {
  using Word = std::uint64_t;
  using Lane = DoubleLanes;
};

template <class T>
using WordOf = typename Computed<T>::Word;
template <class T>
using FloatOf = typename MachineFloat<WordOf<T>>::Float;
template <class T>
using LanesOf = typename Computed<T>::Lane;
template <class T>
using BitsOf = typename Lanes<LanesOf<T>>::Bits;
template <class T>
inline constexpr int count_of = static_cast<int>(sizeof(LanesOf<T>) / sizeof(WordOf<T>));

[[gnu::always_inline]] inline DoubleLanes load_lanes(const double* source) {
  return load_vector<DoubleLanes>(source);
}
[[gnu::always_inline]] inline void store_lanes(double* target, DoubleLanes lanes) {
  store_vector(target, lanes);
}
[[gnu::always_inline]] inline DoubleLanes with_one_nan(DoubleLanes lanes) {
  return lanes == lanes ? lanes
                        : broadcast<DoubleLanes>(__builtin_bit_cast(double, 0x7FF8000000000000u));
}

// As many bytes or halves as there are lanes in a register of float32 or float64.
template <class Short, int count>
struct ShortVector {
  using type [[gnu::vector_size(count * sizeof(Short))]] = Short;
};

// Words of 8 or 16 bits, each in a lane of bits.
template <class T, class Short>
[[gnu::always_inline]] inline BitsOf<T> load_short(const Short* source) {
  using Vector = typename ShortVector<Short, count_of<T>>::type;
  return __builtin_convertvector(load_vector<Vector>(source), BitsOf<T>);
}
template <class T, class Short>
[[gnu::always_inline]] inline void store_short(Short* target, BitsOf<T> bits) {
  using Vector = typename ShortVector<Short, count_of<T>>::type;
  store_vector(target, __builtin_convertvector(bits, Vector));
}

// Calls work(i, n) for whole registers of elements from i on, n = 0, and once for the n elements
// that are left.
template <class T, class Work>
[[gnu::always_inline]] inline void for_lanes(std::int64_t count, Work&& work) {
  constexpr int step = count_of<T>;
  std::int64_t i = 0;
  for (; i + step <= count; i += step) work(i, std::integral_constant<bool, true>{}, step);
  if (i < count) work(i, std::integral_constant<bool, false>{}, static_cast<int>(count - i));
}

// A register's worth of elements from `source` on; past the first `count` zeros.
template <class Element, int step>
struct Some {
  Element elements[step];

  Some() : elements{} {}
  Some(const Element* source, int count) : elements{} { copy_elements(elements, source, count); }
};

}  // namespace
}  // namespace cpu
}  // namespace mxkern
