// mxkern/kernels/few_loaded_tokens.cuh: tokens of a few-token product, from memory to registers.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/few_parameters.h"

namespace mxkern::kernels::few {

// What a lane needs of a token for 32 columns, if wanted. No branch: weights are to be decoded
// meanwhile.
__device__ __forceinline__ void load_if(bool wanted, std::uint32_t (&b)[4],
                                        const std::uint8_t* from) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.b32 wanted, %5, 0;\n"
      "@wanted ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "+r"(b[0]), "+r"(b[1]), "+r"(b[2]), "+r"(b[3])
      : "l"(from), "r"(static_cast<int>(wanted)));
}

// Tokens of a lane, in registers: as soon as those of 32 columns are used, the same columns of the
// warp's next tile are loaded in their place.
template <class K>
class LoadedTokens {
 public:
  __device__ LoadedTokens(const FewParameters& p, const std::uint8_t* x, int tokens, int tile,
                          int lane)
      : tile_(tile), last_(p.layout.columns % DecodeLayout::tile_columns == 0 ? -1 : p.tiles - 1) {
    const int column = tile * DecodeLayout::tile_columns + lane % 4 * 8;
#pragma unroll
    for (int t = 0; t < count; ++t) {
      rows_[t] = x + lower_of(lane / 4 + 8 * t, tokens - 1) * p.x_row_bytes + 2 * column;
    }
    left_ = static_cast<int>(p.layout.columns) - column;
#pragma unroll
    for (int block = 0; block < blocks; ++block) load(block);
    load_ragged();
  }

  // To the tile `tiles` on, which exists or not.
  __device__ __forceinline__ void advance(int tiles, bool exists) {
#pragma unroll
    for (int t = 0; t < count; ++t) rows_[t] += tiles * (DecodeLayout::tile_columns * 2);
    left_ -= tiles * DecodeLayout::tile_columns;
    tile_ += tiles;
    exists_ = exists;
  }

  __device__ __forceinline__ void load(int block) {
#pragma unroll
    for (int t = 0; t < count; ++t) {
      load_if(exists_ && tile_ != last_, words_[block][t], rows_[t] + block * 64);
    }
  }

  // A tile that has not all of its columns, with zeros behind the last.
  __device__ __forceinline__ void load_ragged() {
    if (!exists_ || tile_ != last_) return;
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
#pragma unroll
      for (int t = 0; t < count; ++t) {
        const std::uint8_t* from = rows_[t] + block * 64;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int column = block * 32 + 2 * i;
          std::uint32_t word = 0;
          if (column < left_) word = *reinterpret_cast<const std::uint16_t*>(from + 4 * i);
          if (column + 1 < left_) {
            word |= static_cast<std::uint32_t>(
                        *reinterpret_cast<const std::uint16_t*>(from + 4 * i + 2))
                    << 16;
          }
          words_[block][t][i] = word;
        }
      }
    }
  }

  __device__ __forceinline__ void get(std::uint32_t (&b)[K::tokens / 8][4], int block) const {
#pragma unroll
    for (int t = 0; t < count; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) b[t][i] = words_[block][t][i];
    }
  }

 private:
  static constexpr int count = K::tokens / 8, blocks = DecodeLayout::tile_blocks;

  const std::uint8_t* rows_[count];  // at the lane's first column of the tile
  int left_;                         // columns from there to the last
  int tile_, last_;                  // the ragged one, or none
  bool exists_ = true;
  std::uint32_t words_[blocks][count][4] = {};
};

// In their place, where tokens come through shared memory.
struct NoTokens {
  template <class... Arguments>
  __device__ explicit NoTokens(const Arguments&...) {}
};

}  // namespace mxkern::kernels::few
