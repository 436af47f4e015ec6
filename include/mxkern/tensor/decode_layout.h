// mxkern/tensor/decode_layout.h: weights in the order in which products of few tokens read them.
//
// Tiles of 32 rows x 128 columns follow one another along the columns, then along the rows. A tile
// holds what the 32 lanes of a warp read for the instruction mma.m16n8k16, weights on the side of
// 16: for each 32 columns `words` words a lane, then the tile's scales. Behind the tiles lies a
// byte a row, RowKind, then ScaleSpread of each. Rows and columns are padded with zero codes and
// zero scales; blocks whose codes are all zeros have zero scales too. Scales of NVFP4 are
// LiftedScales.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/numerics/visit.h"
#include "mxkern/tensor/half_scales.h"

namespace mxkern {

// Bits of a word that become bits of a 16-bit float: (word << shift) & mask in both of its halves;
// shift < 0: to the right. Masks are such that no bit crosses from half to half, but for pairs that
// cross as a whole.
struct BitRun {
  int word;
  int shift;
  std::uint32_t mask;  // of 16 bits
};

// A register of the instruction holds two elements, adjacent along K: a pair. `pairs` pairs share
// `words` words, so that most of them take a shift and a mask. A pair's element has its sign in bit
// 15 and its exponent and mantissa where bfloat16 has their low ends, thus it is its value times
// 2^(bias - 127), subnormals included. Integers have their eight bits in the low byte.
template <class Format>
struct DecodeBits;

template <>
struct DecodeBits<E2M1> {
  static constexpr int words = 1, pairs = 4, runs = 3;
  MXKERN_HOST_DEVICE static constexpr BitRun run(int pair, int i) {
    constexpr BitRun table[pairs][runs] = {
        {{0, 0, 0x81C0}},
        {{0, 3, 0x81C0}},
        {{0, 6, 0x81C0}},
        {{0, 2, 0x8000}, {0, -3, 0x0180}, {0, -8, 0x0040}},
    };
    return table[pair][i];
  }
  // What the first three leave of a half is the other half's: see get_pair.
  MXKERN_HOST_DEVICE static constexpr bool crosses(int pair) { return pair == 3; }
};

template <>
struct DecodeBits<E4M3> {
  static constexpr int words = 1, pairs = 2, runs = 2;
  MXKERN_HOST_DEVICE static constexpr BitRun run(int pair, int i) {
    constexpr BitRun table[pairs][runs] = {
        {{0, 0, 0x87F0}},
        {{0, 4, 0x80F0}, {0, -4, 0x0700}},
    };
    return table[pair][i];
  }
};

template <>
struct DecodeBits<E5M2> {
  static constexpr int words = 1, pairs = 2, runs = 3;
  MXKERN_HOST_DEVICE static constexpr BitRun run(int pair, int i) {
    constexpr BitRun table[pairs][runs] = {
        {{0, 0, 0x8FE0}},
        {{0, 5, 0x03E0}, {0, -3, 0x0C00}, {0, 3, 0x8000}},
    };
    return table[pair][i];
  }
};

template <>
struct DecodeBits<E3M2> {
  static constexpr int words = 3, pairs = 8, runs = 3;
  MXKERN_HOST_DEVICE static constexpr BitRun run(int pair, int i) {
    constexpr BitRun table[pairs][runs] = {
        {{0, 0, 0x83E0}},
        {{0, 5, 0x83E0}},
        {{1, 0, 0x83E0}},
        {{1, 5, 0x83E0}},
        {{2, 0, 0x83E0}},
        {{2, 5, 0x83E0}},
        {{0, 1, 0x8000}, {0, -4, 0x0380}, {1, -6, 0x0060}},
        {{2, 1, 0x8000}, {2, -4, 0x0380}, {1, -8, 0x0060}},
    };
    return table[pair][i];
  }
};

template <>
struct DecodeBits<E2M3> {
  static constexpr int words = 3, pairs = 8, runs = 3;
  MXKERN_HOST_DEVICE static constexpr BitRun run(int pair, int i) {
    constexpr BitRun table[pairs][runs] = {
        {{0, 0, 0x81F0}},
        {{0, 5, 0x81E0}, {0, -5, 0x0010}},
        {{1, 0, 0x81F0}},
        {{1, 5, 0x81E0}, {1, -5, 0x0010}},
        {{2, 0, 0x81F0}},
        {{2, 5, 0x81E0}, {2, -5, 0x0010}},
        {{0, 1, 0x8000}, {0, -5, 0x01C0}, {1, -7, 0x0030}},
        {{2, 1, 0x8000}, {2, -5, 0x01C0}, {1, -9, 0x0030}},
    };
    return table[pair][i];
  }
};

template <>
struct DecodeBits<INT8> {
  static constexpr int words = 1, pairs = 2, runs = 1;
  MXKERN_HOST_DEVICE static constexpr BitRun run(int pair, int) {
    return {0, pair == 0 ? 0 : -8, 0x00FF};
  }
};

// The 16 bits that stand for a code, and back.
template <class Format>
MXKERN_HOST_DEVICE constexpr std::uint32_t spread_code(std::uint32_t code) {
  if constexpr (Format::is_integer) {
    return code & 0xFFu;
  } else {
    return (code & Format::sign_mask) << (16 - Format::bits) | (code & Format::magnitude_mask)
                                                                   << (7 - Format::mantissa_bits);
  }
}

template <class Format>
MXKERN_HOST_DEVICE constexpr std::uint32_t gather_code(std::uint32_t bits) {
  if constexpr (Format::is_integer) {
    return bits & 0xFFu;
  } else {
    return (bits >> (16 - Format::bits) & Format::sign_mask) |
           (bits >> (7 - Format::mantissa_bits) & Format::magnitude_mask);
  }
}

namespace decode_layout {

MXKERN_HOST_DEVICE constexpr std::uint32_t shifted(std::uint32_t word, int shift) {
  return shift < 0 ? word >> -shift : word << shift;
}

MXKERN_HOST_DEVICE constexpr std::uint32_t rotated(std::uint32_t word, int left) {
  return word << left | word >> (32 - left);
}

template <class Format>
MXKERN_HOST_DEVICE constexpr std::uint32_t crossed(std::uint32_t word, int pair) {
  if constexpr (std::is_same_v<Format, E2M1>) {
    if (DecodeBits<Format>::crosses(pair)) return rotated(word, 16);
  }
  return word;
}

}  // namespace decode_layout

// The last two pairs of a word of E2M1, from the word rotated by 6 to the left. So there are eight
// operations for four pairs, of which multiplications go another way than logic. That by three
// powers of two makes three shifts of the last pair's bits, none of which meet.
MXKERN_HOST_DEVICE constexpr std::uint32_t turned_pair(std::uint32_t turned, int pair) {
  if (pair == 3) turned = (turned & 0x001B001Bu) * (1u << 2 | 1u << 7 | 1u << 12);
  return turned & 0x81C081C0u;
}

// Adds the pair's bits, one element a half, to the words of its group, which start as zeros.
template <class Format>
MXKERN_HOST_DEVICE constexpr void put_pair(std::uint32_t* words, int pair, std::uint32_t bits) {
  for (int i = 0; i < DecodeBits<Format>::runs; ++i) {
    const BitRun run = DecodeBits<Format>::run(pair, i);
    words[run.word] |= decode_layout::crossed<Format>(
        decode_layout::shifted(bits & run.mask * 0x10001u, -run.shift), pair);
  }
}

template <class Format>
MXKERN_HOST_DEVICE constexpr std::uint32_t get_pair(const std::uint32_t* words, int pair) {
  if constexpr (std::is_same_v<Format, E2M1>) {
    if (pair < 2) return (pair == 0 ? words[0] : words[0] * 8) & 0x81C081C0u;
    return turned_pair(decode_layout::rotated(words[0], 6), pair);
  }
  std::uint32_t bits = 0;
  for (int i = 0; i < DecodeBits<Format>::runs; ++i) {
    const BitRun run = DecodeBits<Format>::run(pair, i);
    bits |= decode_layout::shifted(words[run.word], run.shift) & run.mask * 0x10001u;
  }
  return bits;
}

// What a row needs besides sums of finite products.
enum class RowKind : std::uint8_t {
  ordinary,
  poisoned,  // a NaN is in it: every product with it is NaN
  special    // infinities, or scales beyond largest_scale: it is multiplied element by element
};

// Where an element lies in a tile: the words of which lane, and the pair among them.
struct DecodePlace {
  int column_block;  // of 32 columns
  int lane;
  int pair;  // 0..15
  int half;  // of the pair
};

// One matrix. Matrices of a batch follow one another, size() bytes each.
struct DecodeLayout {
  static constexpr int tile_rows = 32;
  static constexpr int tile_columns = 128;
  static constexpr int block_columns = 32;  // that a lane's words are for
  static constexpr int tile_blocks = tile_columns / block_columns;
  static constexpr int lanes = 32;
  static constexpr int alignment = 128;      // of the memory, and of every tile
  static constexpr int largest_scale = 160;  // E8M0 byte of an ordinary row: 2^33

  std::int64_t rows;
  std::int64_t columns;
  int bits;   // of a code
  int block;  // columns that share a scale

  static constexpr DecodeLayout of(Scheme scheme, std::int64_t rows, std::int64_t columns) {
    const SchemeFacts facts = facts_of(scheme);
    return {rows, columns, facts.bits, facts.block};
  }

  // Of 32 bits, that a lane reads for 32 columns: 32 codes.
  MXKERN_HOST_DEVICE constexpr int words() const { return bits; }
  MXKERN_HOST_DEVICE constexpr int block_bytes() const { return words() * 4 * lanes; }
  MXKERN_HOST_DEVICE constexpr int code_bytes() const { return tile_blocks * block_bytes(); }
  MXKERN_HOST_DEVICE constexpr int block_scales() const { return block_columns / block; }
  MXKERN_HOST_DEVICE constexpr int scale_bytes() const {
    return tile_rows * tile_blocks * block_scales();
  }
  MXKERN_HOST_DEVICE constexpr int tile_bytes() const { return code_bytes() + scale_bytes(); }

  MXKERN_HOST_DEVICE constexpr std::int64_t tiles_down() const { return ceil_div(rows, tile_rows); }
  MXKERN_HOST_DEVICE constexpr std::int64_t tiles_across() const {
    return ceil_div(columns, tile_columns);
  }
  MXKERN_HOST_DEVICE constexpr std::int64_t tile_offset(std::int64_t down,
                                                        std::int64_t across) const {
    return (down * tiles_across() + across) * tile_bytes();
  }
  MXKERN_HOST_DEVICE constexpr std::int64_t kinds_offset() const {
    return tile_offset(tiles_down(), 0);
  }
  MXKERN_HOST_DEVICE constexpr std::int64_t spreads_offset() const {
    return kinds_offset() + round_up(tiles_down() * tile_rows, alignment);
  }
  MXKERN_HOST_DEVICE constexpr std::int64_t size() const {
    constexpr auto bytes = static_cast<std::int64_t>(sizeof(ScaleSpread));
    return spreads_offset() + round_up(tiles_down() * tile_rows * bytes, alignment);
  }

  // In a tile: a lane's words lie four and four together, a rest of two in a plane of its own.
  MXKERN_HOST_DEVICE constexpr int word_offset(int column_block, int lane, int word) const {
    const int plane = word / 4, width = plane * 4 + 4 <= words() ? 4 : 2;
    return column_block * block_bytes() + plane * 16 * lanes + (lane * width + word % 4) * 4;
  }

  // In a tile: the four scales that a lane needs for 32 columns, of rows 8 apart, lie together, and
  // those for all columns of the tile one after the other.
  MXKERN_HOST_DEVICE constexpr int scale_offset(int row, int scale_block) const {
    const int in_block = scale_block % block_scales();
    const int word = (row % 8 * block_scales() + in_block) * tile_blocks;
    return code_bytes() + (word + scale_block / block_scales()) * 4 + row / 8;
  }

  // A step of the instruction takes 16 columns, a lane two adjacent ones of each eight: tokens in
  // shared memory need no order of their own.
  MXKERN_HOST_DEVICE constexpr DecodePlace place(int row, int column) const {
    const int within = column % block_columns, step = within / 16, upper = row / 8 % 2;
    return {column / block_columns, row % 8 * 4 + within % 8 / 2,
            ((row / 16 * 2 + step) * 2 + within / 8 % 2) * 2 + upper, within % 2};
  }

  // The inverse of place.
  MXKERN_HOST_DEVICE constexpr int row_of(const DecodePlace& p) const {
    return p.pair / 8 * 16 + p.pair % 2 * 8 + p.lane / 4;
  }
  MXKERN_HOST_DEVICE constexpr int column_of(const DecodePlace& p) const {
    const int within = p.pair / 4 % 2 * 16 + p.pair / 2 % 2 * 8 + p.lane % 4 * 2 + p.half;
    return p.column_block * block_columns + within;
  }
};

}  // namespace mxkern
