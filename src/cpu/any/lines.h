// cpu/any/lines.h: stretches of a row encoded, decoded and rounded with a format that is known
// at run time. Only files in cpu/instances/ may include it.
#pragma once

#include <type_traits>
#include <utility>

#include "cpu/any/lanes.h"
#include "cpu/any/kernels.h"

namespace mxkern::cpu {
namespace {

// Lanes of source[i] on: all of them, or `count` and zeros.
template <class T, bool whole>
[[gnu::always_inline]] inline LanesOf<T> load_some(const T* source, int count) {
  if constexpr (whole) return load_lanes(source);
  return load_lanes(Some<T, count_of<T>>(source, count).elements);
}

template <class T, bool whole, class Short>
[[gnu::always_inline]] inline BitsOf<T> load_short_some(const Short* source, int count) {
  if constexpr (whole) return load_short<T>(source);
  return load_short<T>(Some<Short, count_of<T>>(source, count).elements);
}

template <class T, bool whole>
[[gnu::always_inline]] inline void store_some(T* target, LanesOf<T> lanes, int count) {
  if constexpr (whole) {
    store_lanes(target, lanes);
  } else {
    Some<T, count_of<T>> some;
    store_lanes(some.elements, lanes);
    copy_elements(target, some.elements, count);
  }
}

template <class T, bool whole, class Short>
[[gnu::always_inline]] inline void store_short_some(Short* target, BitsOf<T> bits, int count) {
  if constexpr (whole) {
    store_short<T>(target, bits);
  } else {
    Some<Short, count_of<T>> some;
    store_short<T>(some.elements, bits);
    copy_elements(target, some.elements, count);
  }
}

// Elements as they are encoded.
template <class T, bool whole>
[[gnu::always_inline]] inline LanesOf<T> scaled_some(const AnyStretch<FloatOf<T>>& stretch,
                                                     std::int64_t i, int count) {
  const LanesOf<T> x = load_some<T, whole>(static_cast<const T*>(stretch.x) + i, count);
  if (stretch.multipliers == nullptr) return x;
  return x * load_some<FloatOf<T>, whole>(stretch.multipliers + i, count);
}

template <class T, bool whole>
[[gnu::always_inline]] inline BitsOf<T> random_some(const AnyStretch<FloatOf<T>>& stretch,
                                                    std::int64_t i, int count) {
  return stretch.random == nullptr ? BitsOf<T>{}
                                   : load_short_some<T, whole>(stretch.random + i, count);
}

template <class T, class Short>
[[gnu::always_inline]] inline void encode_to(const AnyStretch<FloatOf<T>>& given,
                                             const AnyWay<WordOf<T>>& way, Short* codes) {
  const AnyStretch<FloatOf<T>> stretch = given;  // copies, which no store can change
  if (way.is_nearest) {
    const NearestEncoder<WordOf<T>> encoder = way.nearest;
    return for_lanes<T>(stretch.count, [&](std::int64_t i, auto whole, int count) {
      const LanesOf<T> x = scaled_some<T, whole()>(stretch, i, count);
      store_short_some<T, whole()>(codes + i, encode_any<LanesOf<T>>(encoder, x), count);
    });
  }
  const AnyEncoder<WordOf<T>> encoder = way.encoder;
  for_lanes<T>(stretch.count, [&](std::int64_t i, auto whole, int count) {
    const LanesOf<T> x = scaled_some<T, whole()>(stretch, i, count);
    const BitsOf<T> bits =
        encode_any<LanesOf<T>>(encoder, x, random_some<T, whole()>(stretch, i, count));
    store_short_some<T, whole()>(codes + i, bits, count);
  });
}

template <class T>
void any_encode(const AnyStretch<FloatOf<T>>& stretch, const AnyWay<WordOf<T>>& way, bool is_wide,
                void* codes) {
  if (is_wide) return encode_to<T>(stretch, way, static_cast<std::uint16_t*>(codes));
  encode_to<T>(stretch, way, static_cast<std::uint8_t*>(codes));
}

// Elements times their scales.
template <class T, bool whole>
[[gnu::always_inline]] inline LanesOf<T> values_of(LanesOf<T> element,
                                                   const AnyValues<FloatOf<T>>& values,
                                                   std::int64_t i, int count) {
  if (values.scales == nullptr) return element;
  const LanesOf<T> value = element * load_some<FloatOf<T>, whole>(values.scales + i, count);
  return values.has_tensor_scale ? LanesOf<T>(value * values.tensor_scale) : value;
}

template <class T, class Short>
[[gnu::always_inline]] inline void decode_from(const Short* codes, std::int64_t count,
                                               const AnyDecoder<WordOf<T>>& given_decoder,
                                               const AnyValues<FloatOf<T>>& given, T* out) {
  const AnyDecoder<WordOf<T>> decoder = given_decoder;
  const AnyValues<FloatOf<T>> values = given;
  for_lanes<T>(count, [&](std::int64_t i, auto whole, int left) {
    const BitsOf<T> bits = load_short_some<T, whole()>(codes + i, left);
    const LanesOf<T> value =
        values_of<T, whole()>(decode_any<BitsOf<T>>(decoder, bits), values, i, left);
    store_some<T, whole()>(out + i, with_one_nan(value), left);
  });
}

template <class T>
void any_decode(const void* codes, bool is_wide, std::int64_t count,
                const AnyDecoder<WordOf<T>>& decoder, const AnyValues<FloatOf<T>>& values,
                void* out) {
  T* target = static_cast<T*>(out);
  if (is_wide) {
    return decode_from<T>(static_cast<const std::uint16_t*>(codes), count, decoder, values, target);
  }
  decode_from<T>(static_cast<const std::uint8_t*>(codes), count, decoder, values, target);
}

template <class T>
void any_round(const AnyStretch<FloatOf<T>>& given, const AnyWay<WordOf<T>>& way,
               const AnyDecoder<WordOf<T>>& given_decoder,
               const AnyValues<FloatOf<T>>& given_values, void* out) {
  const AnyStretch<FloatOf<T>> stretch = given;
  const AnyValues<FloatOf<T>> values = given_values;
  T* target = static_cast<T*>(out);
  const bool keeps_nan = values.scales == nullptr;  // formats without NaN have it in scales
  if constexpr (sizeof(WordOf<T>) == 4) {
    if (way.is_bits && keeps_nan) {
      const BitRounder rounder = way.bits;
      return for_lanes<T>(stretch.count, [&](std::int64_t i, auto whole, int count) {
        const LanesOf<T> x = scaled_some<T, whole()>(stretch, i, count);
        const LanesOf<T> value = mxkern::round_any<LanesOf<T>>(rounder, x);
        store_some<T, whole()>(target + i, with_one_nan(x == x ? value : x), count);
      });
    }
  }
  if (way.is_nearest) {
    const NearestEncoder<WordOf<T>> encoder = way.nearest;
    return for_lanes<T>(stretch.count, [&](std::int64_t i, auto whole, int count) {
      const LanesOf<T> x = scaled_some<T, whole()>(stretch, i, count);
      const LanesOf<T> element = mxkern::round_any<LanesOf<T>>(encoder, x);
      LanesOf<T> value = values_of<T, whole()>(element, values, i, count);
      if (keeps_nan) value = x == x ? value : x;
      store_some<T, whole()>(target + i, with_one_nan(value), count);
    });
  }
  const AnyEncoder<WordOf<T>> encoder = way.encoder;
  const AnyDecoder<WordOf<T>> decoder = given_decoder;
  for_lanes<T>(stretch.count, [&](std::int64_t i, auto whole, int count) {
    const LanesOf<T> x = scaled_some<T, whole()>(stretch, i, count);
    const BitsOf<T> bits =
        encode_any<LanesOf<T>>(encoder, x, random_some<T, whole()>(stretch, i, count));
    LanesOf<T> value =
        values_of<T, whole()>(decode_any<BitsOf<T>>(decoder, bits), values, i, count);
    if (keeps_nan) value = x == x ? value : x;
    store_some<T, whole()>(target + i, with_one_nan(value), count);
  });
}

template <class T>
WordOf<T> bits_of_element(T element) {
  using Word = WordOf<T>;
  if constexpr (std::is_same_v<T, double>) {
    return bits_of(element) & (~Word{0} >> 1);
  } else {
    return bits_of(to_float(element)) & (~Word{0} >> 1);
  }
}

template <int stride, class Bits, std::size_t... i>
[[gnu::always_inline]] inline Bits swapped(Bits bits, std::index_sequence<i...>) {
  return __builtin_shufflevector(bits, bits, (i ^ stride)...);
}

// The largest lane, in every lane.
template <int count, int stride = 1, class Bits>
[[gnu::always_inline]] inline Bits spread_largest(Bits bits) {
  if constexpr (stride < count) {
    const Bits others = swapped<stride>(bits, std::make_index_sequence<count>{});
    return spread_largest<count, stride * 2>(higher_of<Bits>(bits, others));
  } else {
    return bits;
  }
}

template <class T>
[[gnu::always_inline]] inline WordOf<T> largest_of(BitsOf<T> bits) {
  return spread_largest<count_of<T>>(bits)[0];
}

template <class T>
void any_block_amax(const void* source, std::int64_t count, std::int64_t block, WordOf<T>* amax) {
  using Word = WordOf<T>;
  const T* x = static_cast<const T*>(source);
  for (std::int64_t start = 0, b = 0; start < count; start += block, ++b) {
    const std::int64_t length = lower_of(block, count - start);
    BitsOf<T> lanes{};
    std::int64_t i = start;
    const std::int64_t end = start + length;
    for (; i + count_of<T> <= end; i += count_of<T>) {
      lanes = higher_of<BitsOf<T>>(lanes, bits_of(load_lanes(x + i)) & (~Word{0} >> 1));
    }
    Word largest = largest_of<T>(lanes);
    for (; i < end; ++i) largest = higher_of(largest, bits_of_element(x[i]));
    amax[b] = higher_of(amax[b], largest);
  }
}

template <class T>
WordOf<T> any_finite_amax(const void* source, std::int64_t count) {
  using Word = WordOf<T>;
  using Machine = MachineFloat<Word>;
  constexpr Word infinite = (~Word{0} >> (Machine::mantissa_bits + 1)) << Machine::mantissa_bits;
  const T* x = static_cast<const T*>(source);
  BitsOf<T> largest{};
  for_lanes<T>(count, [&](std::int64_t i, auto whole, int left) {
    const BitsOf<T> bits = bits_of(load_some<T, whole()>(x + i, left)) & (~Word{0} >> 1);
    const BitsOf<T> finite = bits < broadcast<BitsOf<T>>(infinite) ? bits : BitsOf<T>{};
    largest = higher_of<BitsOf<T>>(largest, finite);
  });
  return largest_of<T>(largest);
}

template <class T, class Rounded>
[[gnu::always_inline]] inline void add_errors(const T* x, std::int64_t count,
                                              const AnyErrors<FloatOf<T>>& errors,
                                              FloatOf<T>* parts, Rounded&& rounded) {
  constexpr int step = count_of<T>, registers = error_parts / step;
  static_assert(error_parts % step == 0);
  LanesOf<T> sums[registers];
  for (int r = 0; r < registers; ++r) sums[r] = load_vector<LanesOf<T>>(parts + r * step);
  for (std::int64_t start = 0; start < count; start += error_parts) {
    for (int r = 0; r < registers; ++r) {
      const std::int64_t i = start + r * step;
      const auto left =
          static_cast<int>(higher_of<std::int64_t>(lower_of<std::int64_t>(count - i, step), 0));
      const LanesOf<T> value =
          left == step ? load_some<T, true>(x + i, step) : load_some<T, false>(x + i, left);
      const LanesOf<T> decoded =
          rounded(LanesOf<T>(value * errors.other_multiplier)) * errors.ratio;
      const LanesOf<T> error = value * errors.multiplier - decoded;
      sums[r] = sums[r] + error * error;
    }
  }
  for (int r = 0; r < registers; ++r) store_vector(parts + r * step, sums[r]);
}

template <class T>
void any_add_errors(const void* source, std::int64_t count, const AnyErrors<FloatOf<T>>& errors,
                    const AnyWay<WordOf<T>>& way, const AnyDecoder<WordOf<T>>& given_decoder,
                    FloatOf<T>* parts) {
  const T* x = static_cast<const T*>(source);
  if (way.is_nearest) {
    const NearestEncoder<WordOf<T>> encoder = way.nearest;
    return add_errors(x, count, errors, parts, [&](LanesOf<T> value) {
      return mxkern::round_any<LanesOf<T>>(encoder, value);
    });
  }
  const AnyEncoder<WordOf<T>> encoder = way.encoder;
  const AnyDecoder<WordOf<T>> decoder = given_decoder;
  add_errors(x, count, errors, parts, [&](LanesOf<T> value) {
    return decode_any<BitsOf<T>>(decoder, encode_any<LanesOf<T>>(encoder, value, BitsOf<T>{}));
  });
}

template <class T>
constexpr AnyKernelsOf<WordOf<T>> any_kernels_of() {
  return {any_block_amax<T>, any_finite_amax<T>, any_encode<T>,
          any_decode<T>,     any_round<T>,       any_add_errors<T>};
}

}  // namespace
}  // namespace mxkern::cpu
