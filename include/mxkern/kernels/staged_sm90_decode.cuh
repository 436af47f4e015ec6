// mxkern/kernels/staged_sm90_decode.cuh: reordered codes to bfloat16 as wgmma reads it in shared
// memory.
#pragma once

#include <cstdint>

#include "mxkern/kernels/few_sm90_decode.cuh"
#include "mxkern/kernels/staged_sm90_rings.cuh"

namespace mxkern::kernels::staged {

// A warp: some tiles of 32 rows of the weights, step after step. A lane has eight adjacent columns
// of rows 8 apart, each of which is one store of 16 bytes. Of two adjacent rows one has the step's
// first 32 columns first and the other one the last, so that lanes that write together do not meet
// in a bank. Rows lie such that a thread's sums are those of four adjacent rows: of 16 rows wgmma
// gives it 2 q, 2 q + 1, 2 q + 8 and 2 q + 9.
template <class K>
struct Decoder {
  const Rings<K>& rings;
  const std::uint8_t* codes;  // this warp's first tile
  std::int64_t row_bytes;     // from a row of its tiles to the next one
  int decoder, lane;

  static_assert(K::Format::bits == 4, "a lane's words of 32 columns are 16 bytes");
  static constexpr int tiles_down = ceil_div(K::row_tiles, K::decoders);
  using Words = uint4[tiles_down][2];

  // Of this warp's tiles `rows` exist. The words of a step are read before the step ahead is
  // decoded, and are there when it is.
  __device__ __forceinline__ void run(int rows, int tiles) const {
    const std::uint64_t policy = few::evict_first_policy();
    Turn<K::Shape::decoded_stages> to;
    int stage = 0, parity = 0;
    const int down = lane / 4;  // row, of eight
    const int within = down / 4 * 2 + down % 2;
    const std::uint32_t at = rings.decoded() + decoder * (DecodeLayout::tile_rows * 128) +
                             down / 2 % 2 * 1024 + within * 128 +
                             ((down % 2 * 4 + lane % 4) ^ within) * 16;
    Words even, odd;
    uint4 scales[tiles_down], next_scales[tiles_down];
    if (tiles == 0) return;
    wait_for(stage, parity, rows);
    read_scales(next_scales, stage);
    read(even, stage, 0);
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
#pragma unroll
      for (int j = 0; j < tiles_down; ++j) scales[j] = next_scales[j];
      read(odd, stage, 1);
      make(even, scales, 0, at, to, 2 * i);
      // All lanes have read this tile: the fence there waited for it.
      if (i + rings.stages < tiles && few::elect()) {
        const std::uint8_t* from =
            codes + static_cast<std::int64_t>(i + rings.stages) * K::tile_bytes;
#pragma unroll
        for (int j = 0; j < tiles_down; ++j) {
          if (j < rows) rings.copy_codes(row_of(j), stage, from + j * row_bytes, policy);
        }
      }
      __syncwarp();
      if (++stage == rings.stages) stage = 0, parity ^= 1;
      if (i + 1 < tiles) {
        wait_for(stage, parity, rows);
        read_scales(next_scales, stage);
        read(even, stage, 0);
      }
      make(odd, scales, 1, at, to, 2 * i + 1);
    }
  }

 private:
  // Where rows do not divide among the decoders some have their last one twice.
  __device__ __forceinline__ int row_of(int j) const {
    const int row = decoder + j * K::decoders;
    return K::row_tiles % K::decoders == 0 || row < K::row_tiles ? row : decoder;
  }

  __device__ __forceinline__ void wait_for(int stage, int parity, int rows) const {
#pragma unroll
    for (int j = 0; j < tiles_down; ++j) {
      if (j < rows) few::wait(rings.codes_full(row_of(j), stage), parity);
    }
  }

  // Of eight adjacent columns' block; of all blocks of the tile.
  __device__ __forceinline__ void read_scales(uint4 (&scales)[tiles_down], int stage) const {
    const int at = K::layout.code_bytes() +
                   (lane / 4 * K::layout.block_scales() + lane % 4 * 8 / K::Scheme::block) * 16;
#pragma unroll
    for (int j = 0; j < tiles_down; ++j) {
      scales[j] = few::read_shared<uint4>(rings.codes(row_of(j), stage) + at);
    }
  }

  __device__ __forceinline__ bool swaps() const { return lane / 4 % 2 != 0; }

  __device__ __forceinline__ void read(Words& word, int stage, int half) const {
    constexpr int block = K::layout.block_bytes();
    const int first = swaps() ? block : 0;
#pragma unroll
    for (int j = 0; j < tiles_down; ++j) {
      const std::uint32_t from = rings.codes(row_of(j), stage) + half * 2 * block;
      word[j][0] = few::read_shared<uint4>(from + first + lane * 16);
      word[j][1] = few::read_shared<uint4>(from + (block - first) + lane * 16);
    }
  }

  __device__ __forceinline__ void make(const Words& word, const uint4 (&scales)[tiles_down],
                                       int half, std::uint32_t at,
                                       Turn<K::Shape::decoded_stages>& to, int step) const {
    if (step >= K::Shape::decoded_stages) few::wait(rings.free(to.stage), to.parity ^ 1);
#pragma unroll
    for (int j = 0; j < tiles_down; ++j) {
      if (decoder + j * K::decoders >= K::row_tiles) continue;
      const std::uint32_t a = half == 0 ? scales[j].x : scales[j].z;
      const std::uint32_t b = half == 0 ? scales[j].y : scales[j].w;
      const std::uint32_t there =
          at + to.stage * K::decoded_bytes + j * K::decoders * (DecodeLayout::tile_rows * 128);
      decode(word[j][0], swaps() ? b : a, there);
      decode(word[j][1], swaps() ? a : b, there ^ 64);
    }
    ptx::fence_shared_for_tma();
    __syncwarp();
    if (lane == 0) few::arrive(rings.full(to.stage));
    to.advance();
  }

  // 32 columns.
  __device__ __forceinline__ void decode(const uint4& words, std::uint32_t scales,
                                         std::uint32_t to) const {
    using Format = typename K::Format;
    using Bits = DecodeBits<Format>;
    const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const std::uint32_t multipliers =
          few::multipliers_of<K>(scales, upper == 0 ? 0x4140u : 0x4342u);
      std::uint32_t made[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int pair = upper * 8 + i;
        const std::uint32_t bits = few::decode_pair<Format, false>(
            word + pair / Bits::pairs * Bits::words, pair % Bits::pairs);
        made[i % 2][i / 2] = i % 2 == 0 ? few::multiply_by_half<0>(bits, multipliers)
                                        : few::multiply_by_half<1>(bits, multipliers);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        few::write_shared((to ^ i * 64) + upper * 2048 + i * 512,
                          uint4{made[i][0], made[i][1], made[i][2], made[i][3]});
      }
    }
  }
};

}  // namespace mxkern::kernels::staged
