// mxkern/tensor/packing.h: codes of 4 and 6 bits in bytes, little-endian, low bits first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/scheme.h"
#include "mxkern/numerics/visit.h"

namespace mxkern {

// Codes are packed in groups that end on a byte: 2 of 4 bits in 1 byte, 4 of 6 bits in 3 bytes.
template <int Bits>
struct PackGroup {
  static constexpr int codes = Bits == 8 ? 1 : Bits == 4 ? 2 : 4;
  static constexpr int bytes = codes * Bits / 8;
  static_assert(codes * Bits == bytes * 8, "a group ends on a byte");
};

// Packs one group of codes, each in its own byte.
template <int Bits>
MXKERN_HOST_DEVICE constexpr void pack_group(const std::uint8_t* codes, std::uint8_t* bytes) {
  std::uint32_t word = 0;
  for (int i = 0; i < PackGroup<Bits>::codes; ++i) {
    word |= static_cast<std::uint32_t>(codes[i]) << (Bits * i);
  }
  for (int i = 0; i < PackGroup<Bits>::bytes; ++i) {
    bytes[i] = static_cast<std::uint8_t>(word >> (8 * i));
  }
}

// Unpacks one group of codes, each into its own byte.
template <int Bits>
MXKERN_HOST_DEVICE constexpr void unpack_group(const std::uint8_t* bytes, std::uint8_t* codes) {
  std::uint32_t word = 0;
  for (int i = 0; i < PackGroup<Bits>::bytes; ++i) {
    word |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
  }
  for (int i = 0; i < PackGroup<Bits>::codes; ++i) {
    codes[i] = static_cast<std::uint8_t>((word >> (Bits * i)) & ((1u << Bits) - 1));
  }
}

// Packs `count` codes; count is a multiple of the group.
template <int Bits>
MXKERN_HOST_DEVICE constexpr void pack(const std::uint8_t* codes, int count, std::uint8_t* bytes) {
  using Group = PackGroup<Bits>;
  for (int i = 0; i < count / Group::codes; ++i) {
    pack_group<Bits>(codes + i * Group::codes, bytes + i * Group::bytes);
  }
}

// Unpacks `count` codes; count is a multiple of the group.
template <int Bits>
MXKERN_HOST_DEVICE constexpr void unpack(const std::uint8_t* bytes, int count,
                                         std::uint8_t* codes) {
  using Group = PackGroup<Bits>;
  for (int i = 0; i < count / Group::codes; ++i) {
    unpack_group<Bits>(bytes + i * Group::bytes, codes + i * Group::codes);
  }
}

// Bytes of the codes of a row of `columns` elements. 8-bit codes are not padded; packed codes are
// padded with zero codes to a whole block.
MXKERN_HOST_DEVICE constexpr std::int64_t code_row_bytes(int bits, int block, int block_bytes,
                                                         std::int64_t columns) {
  return bits == 8 ? columns : ceil_div(columns, block) * block_bytes;
}

template <class S>
MXKERN_HOST_DEVICE constexpr std::int64_t code_row_bytes(std::int64_t columns) {
  return code_row_bytes(S::Format::bits, S::block, S::block_bytes, columns);
}

constexpr std::int64_t code_row_bytes(Scheme scheme, std::int64_t columns) {
  const SchemeFacts facts = facts_of(scheme);
  return code_row_bytes(facts.bits, facts.block, facts.block_bytes, columns);
}

static_assert(code_row_bytes<MxFp6E2M3>(33) == 48 && code_row_bytes<MxFp8E4M3>(33) == 33);

}  // namespace mxkern
