// mxkern/kernels/decode/hopper/words.cuh: a tile's codes from shared memory to registers.
#pragma once

#include <cstdint>

#include "mxkern/kernels/decode/upcast.cuh"

namespace mxkern::kernels::few {

// The words of 16 rows x 32 columns, of the lower or the upper half of a tile's rows.
template <class K>
__device__ __forceinline__ void read_words(std::uint32_t (&word)[K::Format::bits / 2],
                                           std::uint32_t block, int upper, int lane) {
  constexpr int bits = K::Format::bits;
  if constexpr (bits == 8) {
    const uint4 v = read_shared<uint4>(block + upper * 512 + lane * 16);
    word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
  } else if constexpr (bits == 4) {
    const uint2 v = read_shared<uint2>(block + lane * 16 + upper * 8);
    word[0] = v.x, word[1] = v.y;
  } else {
    // Words 0, 1 and 2, or 3, 4 and 5, the last two of which are in a plane of their own.
    const uint2 v = read_shared<uint2>(block + (upper != 0 ? 512 + lane * 8 : lane * 16));
    const auto w = read_shared<std::uint32_t>(block + lane * 16 + 8 + upper * 4);
    word[0] = upper != 0 ? w : v.x;
    word[1] = upper != 0 ? v.x : v.y;
    word[2] = upper != 0 ? v.y : w;
  }
}

}  // namespace mxkern::kernels::few
