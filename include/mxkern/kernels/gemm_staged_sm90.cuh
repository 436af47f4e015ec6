// mxkern/kernels/gemm_staged_sm90.cuh: hundreds of tokens times reordered weights, both operands of
// wgmma in shared memory.
//
// out[m, n] = x[m, :] . w[n, :]. Some warps decode weights to bfloat16 and write them to shared
// memory, others multiply: a warpgroup 64 tokens and all rows of weights of the thread block. The
// tokens are the left operand, in boxes that the copy engine brings as they lie in memory. Each
// decoder brings its codes itself. The thread blocks of a cluster have a part of K each, added in a
// fixed order.
#pragma once

#include <cstdint>

#include "mxkern/kernels/few_parameters.h"
#include "mxkern/kernels/ptx/cluster.cuh"
#include "mxkern/kernels/ptx/wgmma.cuh"
#include "mxkern/kernels/staged_sm90_decode.cuh"
#include "mxkern/kernels/staged_sm90_finish.cuh"
#include "mxkern/kernels/staged_sm90_rings.cuh"
#include "mxkern/kernels/staged_sm90_shape.h"

namespace mxkern::kernels {

// RowTiles: of a thread block.
template <class S, int RowTiles>
struct StagedSm90Kernel {
  using Scheme = S;
  using Format = typename S::Format;
  using Shape = StagedSm90Shape;
  static constexpr int tokens = Shape::tokens, row_tiles = RowTiles;
  static constexpr int sums = RowTiles * 16;  // of a thread
  static constexpr int warps = tokens / 16;   // that multiply and finish
  static constexpr int threads = 32 * warps;
  static constexpr int all_threads = 384;  // more have too few registers for so many sums
  static constexpr int decoders = all_threads / 32 - warps;  // warps
  static_assert(decoders <= RowTiles, "each has a tile");
  static constexpr int x_stages = Shape::x_stages, x_bytes = Shape::x_bytes;
  static constexpr int decoded_bytes = Shape::decoded_bytes(RowTiles);
  static constexpr DecodeLayout layout{0, 0, Format::bits, S::block};
  static constexpr int tile_bytes = layout.tile_bytes();
  // As in FewKernel.
  static constexpr bool is_half = false, scales_x = false, scales_weights = true;
  static constexpr int x_exponent = 0;
  static constexpr int weight_exponent = -32;
};

namespace staged {

// A warpgroup's sums of all steps. The first warp also asks for tokens: while products are under
// way it has time.
template <class K>
struct Multiplier {
  const Rings<K>& rings;
  const TokenLoader<K>& tokens;
  int steps, warp, lane;

  __device__ __forceinline__ void run(float (&sums)[K::sums]) const {
    Turn<K::Shape::decoded_stages> w;
    Turn<K::x_stages> x;
    int before = 0, x_room = 0;
    std::uint32_t room_parity = 0;
    const std::uint32_t left = ptx::swizzled_start(rings.x() + warp / 4 * (64 * 128));
    const std::uint32_t right = ptx::swizzled_start(rings.decoded());
    ptx::wgmma_pin(sums);
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      few::wait(rings.x_full(x.stage), x.parity);
      few::wait(rings.full(w.stage), w.parity);
      ptx::wgmma_pin(sums);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        ptx::wgmma(bfloat16{}, bfloat16{}, sums,
                   ptx::swizzled_descriptor(left + (x.stage * K::x_bytes + k * 32) / 16),
                   ptx::swizzled_descriptor(right + (w.stage * K::decoded_bytes + k * 32) / 16), 1);
      }
      ptx::wgmma_commit();
      ptx::wgmma_pin(sums);
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(sums);
      if (lane == 0 && i > 0) few::arrive(rings.free(before));
      if (i > 1) {
        // The products of two steps ago have read their tokens.
        if (warp == 0 && i - 2 + K::x_stages < steps) {
          few::wait(rings.free(before == 0 ? K::Shape::decoded_stages - 1 : before - 1),
                    room_parity);
          if (few::elect()) tokens.load(i - 2 + K::x_stages, x_room);
          __syncwarp();
        }
        if (before == 0) room_parity ^= 1;
        if (++x_room == K::x_stages) x_room = 0;
      }
      before = w.stage;
      w.advance(), x.advance();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(sums);
  }
};

}  // namespace staged

// Grid: ranks of the cluster and token tiles along x, groups of row tiles along y, batch along z.
template <class K>
__global__ void __launch_bounds__(K::all_threads, 1)
    gemm_staged_sm90_kernel(const __grid_constant__ FewParameters p,
                            const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const std::uint32_t base = __shfl_sync(0xFFFFFFFFu, few::shared_address(shared), 0);
  // The same in all lanes, which the compiler shall know.
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = static_cast<int>(blockIdx.x) & ((1 << p.log2_ranks) - 1);
  const int token_tile = static_cast<int>(blockIdx.x) >> p.log2_ranks;
  const std::int64_t first_down = static_cast<std::int64_t>(blockIdx.y) * K::row_tiles;
  const std::int64_t batch = blockIdx.z;
  const std::int64_t first_token = static_cast<std::int64_t>(token_tile) * K::tokens;
  // Of the thread block, along K.
  const int first = p.tiles * rank >> p.log2_ranks;
  const int tiles = (p.tiles * (rank + 1) >> p.log2_ranks) - first;
  const std::uint8_t* weights = p.weights + batch * p.weight_batch_bytes;
  const staged::Rings<K> rings{base, p.stages};
  const auto rows =
      static_cast<int>(lower_of<std::int64_t>(K::row_tiles, p.layout.tiles_down() - first_down));
  const std::int64_t row_bytes = static_cast<std::int64_t>(p.tiles) * K::tile_bytes;
  const std::uint8_t* codes = weights + first_down * row_bytes + first * K::tile_bytes;
  const staged::TokenLoader<K> tokens{rings,
                                      map,
                                      p.box_rows * 128,
                                      first * DecodeLayout::tile_columns,
                                      static_cast<int>(first_token),
                                      p.x_batch_bytes == 0 ? 0 : static_cast<int>(batch)};

  few::let_next_kernel_start();
  if (warp == 0) {
    rings.init(lane);
    // Weights do not depend on what the kernel before this one computes. The first tiles alone,
    // since that kernel's reads and the first tokens would wait behind more.
    rings.copy_row(codes + lane * row_bytes, lane, lane < rows ? min(tiles, 1) : 0);
    __syncwarp();
  }
  __syncthreads();
  if (warp >= K::warps) {
    const int decoder = warp - K::warps;
    staged::Decoder<K>{rings, codes + decoder * row_bytes, K::decoders * row_bytes, decoder, lane}
        .run((rows - decoder + K::decoders - 1) / K::decoders, tiles);
    __syncwarp();
    if (p.log2_ranks > 0) {
      few::cluster_arrive_relaxed();
      few::cluster_wait();
    }
    return;
  }
  staged::Finish<K> finish{{p, weights, batch, first_down * DecodeLayout::tile_rows, first_token},
                           rings,
                           rank,
                           static_cast<int>(threadIdx.x)};
  finish.prepare();
  if (warp == 0) {
    few::wait_for_previous_kernel();
    if (lane < min(2 * tiles, K::x_stages)) tokens.load(lane, lane);
    __syncwarp();
    rings.copy_row(codes + lane * row_bytes, lane, lane < rows ? min(tiles, p.stages) : 0, 1);
    __syncwarp();
  }
  float sums[K::sums] = {};
  staged::Multiplier<K>{rings, tokens, 2 * tiles, warp, lane}.run(sums);
  if (p.log2_ranks > 0) {
    if (threadIdx.x == 0) finish.expect();
    __syncwarp();
    few::cluster_arrive_relaxed();
  }
  few::wait_for_previous_kernel();
  finish.prepare_more();

  // The sums take the place of the rings, which are read to the end.
  if (p.log2_ranks > 0) {
    few::cluster_wait();
  } else {
    few::sync_threads<K::threads>();
  }
  finish.put(sums);
  if (p.out_dtype == DType::float32) {
    finish.template run<float>();
  } else if (p.out_dtype == DType::float16) {
    finish.template run<float16>();
  } else {
    finish.template run<bfloat16>();
  }
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
