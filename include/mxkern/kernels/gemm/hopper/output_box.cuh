// mxkern/kernels/gemm/hopper/output_box.cuh: finished values between a warp's registers and what
// the copy engine stores and loads.
#pragma once

#include <cstdint>

#include "mxkern/kernels/ptx/ldmatrix.cuh"
#include "mxkern/kernels/ptx/shared.cuh"
#include "mxkern/kernels/ptx/stmatrix.cuh"

namespace mxkern::kernels {

// What a warp finishes at a time: 64 columns of its 16 rows of a tile. Of 8 columns each lane has
// two, of the rows lane / 4 and 8 below.
struct WarpChunk {
  static constexpr int rows = 16, columns = 64;
  static constexpr int bytes = rows * columns * 2;
  using Values = float[columns / 2];
  using Words = std::uint32_t[columns / 4];  // of a box: two values of 16 bits each, or one of 32
};

// A box of the output in shared memory: 16 rows of 128 bytes, whose 16-byte pieces lie where the
// copy engine's swizzle has them. T: of as many bits as the output's type.
template <class T>
struct OutputBox {
  static constexpr int columns = 128 / static_cast<int>(sizeof(T));
  using Words = WarpChunk::Words;  // in the order of the sums

  __device__ __forceinline__ static void write(std::uint32_t box, int lane, const Words& words) {
    if constexpr (sizeof(T) == 4) {
      for_each_pair(box, lane, [&](std::uint32_t address, int i) {
        ptx::write_shared(address, make_uint2(words[i], words[i + 1]));
      });
    } else {
#pragma unroll
      for (int i = 0; i < WarpChunk::rows; i += 4) {
        ptx::stmatrix(first_matrix(box, lane) ^ i * 8, words[i], words[i + 1], words[i + 2],
                      words[i + 3]);
      }
    }
  }

  __device__ __forceinline__ static void read(std::uint32_t box, int lane, Words& words) {
    if constexpr (sizeof(T) == 4) {
      for_each_pair(box, lane, [&](std::uint32_t address, int i) {
        const uint2 pair = ptx::read_shared<uint2>(address);
        words[i] = pair.x, words[i + 1] = pair.y;
      });
    } else {
#pragma unroll
      for (int i = 0; i < WarpChunk::rows; i += 4) {
        std::uint32_t four[4];
        ptx::load_matrices(four, first_matrix(box, lane) ^ i * 8);
#pragma unroll
        for (int k = 0; k < 4; ++k) words[i + k] = four[k];
      }
    }
  }

 private:
  __device__ __forceinline__ static std::uint32_t first_matrix(std::uint32_t box, int lane) {
    const int row = lane % 16;
    return box + row * 128 + ((lane / 16 ^ row % 8) << 4);
  }

  // Where a lane's pairs of 32-bit values lie, and which they are.
  template <class Use>
  __device__ __forceinline__ static void for_each_pair(std::uint32_t box, int lane, Use&& use) {
    const int row = lane / 4;
    const std::uint32_t first = box + row * 128 + ((lane % 4 / 2 ^ row) << 4) + lane % 2 * 8;
#pragma unroll
    for (int i = 0; i < columns / 8; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        use((first ^ i * 32) + half * 8 * 128, i * 4 + half * 2);
      }
    }
  }
};

}  // namespace mxkern::kernels
