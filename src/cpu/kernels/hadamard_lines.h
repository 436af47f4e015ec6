// cpu/kernels/hadamard_lines.h: the random Hadamard transform of the groups of a line.
// Only files in cpu/instances/ may include it.
#pragma once

#include <utility>

#include "cpu/kernel_table.h"
#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

// One butterfly stage within a register: lane i meets lane i ^ stride; the lower of the two gets
// the sum, the upper one the difference. x - y and x + (-y) round alike.
template <int stride, std::size_t... i>
[[gnu::always_inline]] inline FloatLanes butterfly(FloatLanes x, std::index_sequence<i...>) {
  const BitLanes negated = {((i & stride) != 0 ? float32::sign_mask : 0u)...};
  return __builtin_shufflevector(x, x, (i ^ stride)...) + float_of<BitLanes>(bits_of(x) ^ negated);
}

// x := x H for a group of `size` elements: the stages of hadamard_butterflies, in its order.
template <int size, int stride = 1>
[[gnu::always_inline]] inline void butterflies(FloatLanes (&x)[size / lane_count]) {
  if constexpr (stride < lane_count) {
    for (FloatLanes& lanes : x) {
      lanes = butterfly<stride>(lanes, std::make_index_sequence<lane_count>{});
    }
    butterflies<size, stride * 2>(x);
  } else {
    hadamard_butterflies(x);
  }
}

template <int size, class T>
[[gnu::always_inline]] inline void transform_groups(const T* source, T* target, std::int64_t count,
                                                    const HadamardSigns& signs, bool inverse) {
  constexpr int registers = size / lane_count;
  for (std::int64_t start = 0; start < count; start += size) {
    FloatLanes x[registers];
    for (int i = 0; i < registers; ++i) {
      x[i] = load_lanes(source + start + i * lane_count);
      const auto sign = load_vector<BitLanes>(signs.bits + i * lane_count);
      if (!inverse) x[i] = float_of<BitLanes>(bits_of(x[i]) ^ sign);
    }
    butterflies<size>(x);
    for (int i = 0; i < registers; ++i) {
      x[i] *= hadamard_norm(size);
      const auto sign = load_vector<BitLanes>(signs.bits + i * lane_count);
      if (inverse) x[i] = float_of<BitLanes>(bits_of(x[i]) ^ sign);
      store_lanes(target + start + i * lane_count, with_one_nan(x[i]));
    }
  }
}

template <class T>
void hadamard_line(const void* source, void* target, std::int64_t count, const HadamardSigns& signs,
                   bool inverse) {
  const T* from = static_cast<const T*>(source);
  T* to = static_cast<T*>(target);
  switch (signs.size) {
    case 16: return transform_groups<16>(from, to, count, signs, inverse);
    case 32: return transform_groups<32>(from, to, count, signs, inverse);
    case 64: return transform_groups<64>(from, to, count, signs, inverse);
    case 128: return transform_groups<128>(from, to, count, signs, inverse);
  }
}

}  // namespace
}  // namespace mxkern::cpu
