// mxkern/kernels/gemm/hopper/overlap_expand.cuh: rows of an operand expanded while the product is
// under way.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/operands/expand.cuh"
#include "mxkern/kernels/gemm/hopper/overlap.cuh"
#include "mxkern/kernels/ptx/pairs.cuh"
#include "mxkern/kernels/device/row_scale_words.cuh"

namespace mxkern::kernels {

// A warp. There are few registers, so a lane has few codes on their way, and asks the second-level
// cache for those of a later row.
struct LateRowMaker {
  static constexpr int unit = 8;           // codes of a lane: 16 bytes of elements
  static constexpr int piece = 32 * unit;  // of the warp
  static constexpr int depth = 4;          // pieces on their way
  static constexpr int chunk = 4096;       // columns whose scales are a word a lane

  const LateRows& p;
  int group;  // rows of a tile
  int lane;

  __device__ __forceinline__ void run() const {
    std::uint32_t taken = take();
#pragma unroll 1
    while (true) {
      const int row = p.first + static_cast<int>(__shfl_sync(everyone, taken, 0));
      if (row >= p.rows) return;
      taken = take();  // the answer arrives while this row is made
      make(row);
      p.publish(p.progress + 1 + row / group, 1, lane == 0);
    }
  }

 private:
  static constexpr unsigned everyone = 0xFFFFFFFFu;

  __device__ __forceinline__ std::uint32_t take() const { return p.take(lane == 0); }

  // About as many rows ahead as there are warps that make them.
  __device__ __forceinline__ void prefetch(int row) const {
    if (row >= p.rows) return;
    const std::uint8_t* line = p.codes + std::int64_t{row} * p.columns;
#pragma unroll 1
    for (int at = lane * 128; at < p.columns; at += chunk) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(line + at));
    }
  }

  __device__ __forceinline__ void make(int row) const {
    const int columns = p.columns;
    const int own = lane * unit;  // the first of this lane's columns in a piece
    const std::int64_t start = std::int64_t{row} * columns + own;
    const std::uint8_t* from = p.codes + start;
    bfloat16* to = static_cast<bfloat16*>(p.out) + start;
    const std::uint8_t* scales = p.scales +
                                 begin_of_scales(row, std::int64_t{columns / 32}, p.word_step) +
                                 lane * p.word_step;
    // Four scales, where the row has them; else four that count as NaN.
    const auto scale_word = [&](int at) {
      if (at + lane * 128 >= columns) return ~0u;
      return *reinterpret_cast<const std::uint32_t*>(scales + at / 128 * p.word_step);
    };
    uint2 loaded[depth];
#pragma unroll
    for (int i = 0; i < depth; ++i, from += piece) {
      if (i * piece + own < columns) loaded[i] = __ldcs(reinterpret_cast<const uint2*>(from));
    }
    std::uint32_t word = scale_word(0);
    std::uint32_t pairs = more_than(word);
#pragma unroll 2
    for (int at = chunk; at < columns; at += chunk)
      pairs = __vmaxu2(pairs, more_than(scale_word(at)));
    const auto largest = static_cast<int>(largest_of_warp(pairs));
    prefetch(row + static_cast<int>(2 * gridDim.x));
    const int raised = p.exponent - E4M3::max_exponent;
    if (lane == 0) p.exponents[row] = largest - E8M0::bias - raised;
    // Of multiplications by powers of two the second one is by this.
    const std::uint32_t second =
        static_cast<std::uint32_t>(raised - first_raise + 127) * 0x00800080u;
#pragma unroll 1
    for (int at = 0; at < columns;) {
      if (at % chunk == 0 && at > 0) word = scale_word(at);
#pragma unroll
      for (int i = 0; i < depth; ++i) {
        if (at >= columns) break;
        // The lane that has the word of four scales, and the scale's place in it.
        const std::uint32_t four = __shfl_sync(everyone, word, at / 128 + own / 128);
        const int distance = largest - static_cast<int>(four >> (own / 32 % 4 * 8) & 0xFFu);
        if (at + own < columns) write(to, loaded[i], distance, largest, raised, second);
        if (at + depth * piece + own < columns) {
          loaded[i] = __ldcs(reinterpret_cast<const uint2*>(from));
        }
        from += piece;
        to += piece;
        at += piece;
      }
    }
  }

  // The bits of an E4M3 code are those of a bfloat16 2^120 times smaller, subnormals included; see
  // gemm/hopper/upcast.cuh. 2^127 less the distance is the most that it can be multiplied by at
  // once.
  static constexpr int first_raise = 7;

  // Eight elements as expand makes them, `distance` octaves below the row's largest scale.
  __device__ __forceinline__ void write(bfloat16* to, const uint2& codes, int distance, int largest,
                                        int raised, std::uint32_t second) const {
    const std::uint32_t found =
        ((codes.x & 0x7F7F7F7Fu) + 0x01010101u) | ((codes.y & 0x7F7F7F7Fu) + 0x01010101u);
    uint4 elements;
    // NaN codes, NaN scales, whose distance is negative, and what is small enough to lose bits.
    if ((found & 0x80808080u) != 0 || static_cast<unsigned>(distance) > 120u) {
      const unsigned byte = static_cast<unsigned>(largest - distance);
      const float power = relative_scale<MxFp8E4M3>(byte, raised - largest);
      using Expand = ExpandCodes<MxFp8E4M3>;
      const Octet octet = codes.x | static_cast<Octet>(codes.y) << 32;
      elements = Expand::piece(Expand::expand(octet, power));
    } else {
      const std::uint32_t first = static_cast<std::uint32_t>(254 - distance) * 0x00800080u;
      const auto pair = [&](std::uint32_t with_signs) {
        return ptx::multiply_pair(ptx::multiply_pair(with_signs << 4 & 0x87F087F0u, first), second);
      };
      elements = make_uint4(
          pair(ptx::signs_beside<0x9180>(codes.x)), pair(ptx::signs_beside<0xB3A2>(codes.x)),
          pair(ptx::signs_beside<0x9180>(codes.y)), pair(ptx::signs_beside<0xB3A2>(codes.y)));
    }
    *reinterpret_cast<uint4*>(to) = elements;
  }
};

}  // namespace mxkern::kernels
