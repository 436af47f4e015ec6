// tests/support/format_list.h: the schemes and formats as lists of types, and the published facts.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "mxkern/numerics/scheme.h"

namespace mxkern::test {

// A list of types without repetition, built from the one list of schemes.
template <class... Types>
struct TypeList {
  using ForGTest = ::testing::Types<Types...>;

  template <class T>
  static constexpr bool contains = (std::is_same_v<T, Types> || ...);

  template <class T>
  using With = std::conditional_t<contains<T>, TypeList, TypeList<Types..., T>>;
};

// The macro's entries are not separated: each becomes one step of this chain.
#define MXKERN_TEST_APPEND(Type) ::With<Type>
#define MXKERN_TEST_APPEND_FORMAT(Type) ::With<Type::Format>
using SchemeList = TypeList<> MXKERN_FOR_EACH_SCHEME(MXKERN_TEST_APPEND);
using FormatList = TypeList<> MXKERN_FOR_EACH_SCHEME(MXKERN_TEST_APPEND_FORMAT);
#undef MXKERN_TEST_APPEND
#undef MXKERN_TEST_APPEND_FORMAT

using SchemeTypes = SchemeList::ForGTest;
using FormatTypes = FormatList::ForGTest;

// Names the instances of a typed test after the format or scheme.
struct NameOfType {
  template <class T>
  static std::string GetName(int) {
    return T::name;
  }
};

// What OCP MX v1.0 (and, for INT8, its section 5.3.4) says of a format, typed in by hand: the
// library derives all of it from two numbers. A format without an entry has zeros, which its test
// refuses.
struct PublishedFormat {
  int bits;
  int exponent_bits;  // 0: two's complement
  int mantissa_bits;
  int bias;
  double largest;
  double smallest_normal;
  double smallest_subnormal;
  int max_code;       // of the largest finite magnitude
  int infinity_code;  // -1: none
  int first_nan;      // smallest magnitude code that is NaN; -1: none
  int emax;           // exponent of the largest power of two
};

template <class Format>
inline constexpr PublishedFormat published{};
template <>
inline constexpr PublishedFormat published<E4M3>{8,      4,    3,  7,    448.0, 0x1p-6,
                                                 0x1p-9, 0x7E, -1, 0x7F, 8};
template <>
inline constexpr PublishedFormat published<E5M2>{8,       5,    2,    15,   57344.0, 0x1p-14,
                                                 0x1p-16, 0x7B, 0x7C, 0x7D, 15};
template <>
inline constexpr PublishedFormat published<E3M2>{6, 3, 2, 3, 28.0, 0.25, 0.0625, 0x1F, -1, -1, 4};
template <>
inline constexpr PublishedFormat published<E2M3>{6, 2, 3, 1, 7.5, 1.0, 0.125, 0x1F, -1, -1, 2};
template <>
inline constexpr PublishedFormat published<E2M1>{4, 2, 1, 1, 6.0, 1.0, 0.5, 0x7, -1, -1, 2};
template <>
inline constexpr PublishedFormat published<INT8>{8,    0,  6,  0, 127.0 / 64.0, 1.0, 1.0 / 64.0,
                                                 0x7F, -1, -1, 0};

}  // namespace mxkern::test
