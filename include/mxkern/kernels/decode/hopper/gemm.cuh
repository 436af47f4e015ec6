// mxkern/kernels/decode/hopper/gemm.cuh: tens and hundreds of tokens times reordered weights, on
// wgmma.
//
// out[m, n] = x[m, :] . w[n, :]. Weights are the left operand, decoded to the tokens' type in
// registers: what a warp of wgmma.m64nNk16 holds of it is what mma.m16n8k16 holds, so that the
// layout is the same as that of fewer tokens. Tokens are the right operand, in shared memory, as
// the copy engine brings them. A warpgroup takes 64 rows of weights and all tokens of the thread
// block; while the products of 32 columns are under way it decodes the next 32. Warpgroups of a
// thread block have other rows, or take turns along K; the thread blocks of a cluster have a part
// of K each. All parts are added in a fixed order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/decode/upcast.cuh"
#include "mxkern/kernels/decode/parameters.h"
#include "mxkern/kernels/decode/output_tile.cuh"
#include "mxkern/kernels/decode/hopper/scales.cuh"
#include "mxkern/kernels/decode/hopper/epilogue_direct.cuh"
#include "mxkern/kernels/decode/hopper/epilogue.cuh"
#include "mxkern/kernels/decode/hopper/shared_memory.h"
#include "mxkern/kernels/decode/hopper/pipeline.cuh"
#include "mxkern/kernels/decode/hopper/multiply_folded.cuh"
#include "mxkern/kernels/decode/hopper/words.cuh"
#include "mxkern/kernels/ptx/cluster.cuh"
#include "mxkern/kernels/ptx/elect.cuh"
#include "mxkern/kernels/ptx/pairs.cuh"
#include "mxkern/kernels/ptx/thread_index.cuh"
#include "mxkern/kernels/ptx/wgmma.cuh"
#include "mxkern/kernels/ptx/wgmma_registers.cuh"

namespace mxkern::kernels {

// IsHalf: tokens are float16, else bfloat16. Tokens: of a thread block, a multiple of 32.
// Warpgroups: that multiply. IsGrouped: the rows of x belong to groups. IsFolded: tokens are E4M3
// under a power of two each, in the order of interleaved_column; weights become E5M2 by way of
// float16.
template <class S, bool IsHalf, int Tokens, int Warpgroups, bool IsGrouped = false,
          bool IsFolded = false>
struct DecodeSm90Kernel {
  using Scheme = S;
  using Format = typename S::Format;
  using Shape = DecodeSm90Shape;
  static constexpr int tokens = Tokens;
  static constexpr bool is_grouped = IsGrouped, is_folded = IsFolded;
  static_assert(!IsFolded || (IsHalf && std::is_same_v<Format, E2M1> && S::block == 32),
                "of the weights the high bytes of halves are E5M2");
  static constexpr int warps = 4 * Warpgroups;
  static constexpr int tenants = Shape::tenants(Tokens, Warpgroups);
  // Of 65536 registers: what a thread that multiplies has, and one that copies.
  static constexpr bool moves_registers = Tokens * Warpgroups > 384 ||
                                          (IsFolded && Warpgroups == 4);
  static constexpr int consumer_registers = Warpgroups == 4 ? 112 : 208;
  static constexpr int producer_registers = Warpgroups == 4 ? 32 : 88;
  // Warps: one copies weights, one tokens. A whole warpgroup, where its registers move.
  static constexpr int producers = moves_registers ? 4 : 2;
  static constexpr int threads = 32 * warps;  // that finish
  static constexpr int all_threads = threads + 32 * producers;
  MXKERN_HOST_DEVICE static constexpr DecodeShape shape() {
    return {Format::bits, S::block, Tokens};
  }
  static constexpr DecodeLayout layout{0, 0, Format::bits, S::block};
  static constexpr int tile_bytes = layout.tile_bytes();
  // Blocks of 32 columns that are multiplied while the next ones are decoded: two, where there are
  // registers for it.
  static constexpr int blocks_at_once = Tokens <= 64 || (Warpgroups == 2 && Tokens >= 128) ? 2 : 1;
  static constexpr int half_bytes = Tokens * 128;  // of the tokens, a box
  static constexpr int box_columns = IsFolded ? 128 : 64, tile_boxes = 128 / box_columns;
  // Folded: of few tokens the sums of a block get its scale, else the weights do, as far as a row's
  // scales allow. And what outputs lack beside two to the row's top.
  static constexpr bool scales_sums = IsFolded && Tokens <= 32;
  static constexpr int most_octaves = scales_sums ? 120 : few::most_octaves;
  static constexpr int folded_exponent = scales_sums ? 14 - 127 : HalfScales<Format>::sum_exponent;
  // The same constants as those of DecodeKernel.
  using Element = std::conditional_t<IsHalf, float16, bfloat16>;
  static constexpr bool is_half = IsHalf, scales_x = false, scales_weights = true;
  static constexpr int x_exponent = 0;
  static constexpr int weight_exponent = IsHalf ? -8 : Format::is_integer ? 0 : -32;
};

namespace few {

template <class K>
__device__ __forceinline__ void pin(std::uint32_t (&a)[K::blocks_at_once][2][4]) {
#pragma unroll
  for (int block = 0; block < K::blocks_at_once; ++block) {
    ptx::wgmma_pin(a[block][0]);
    ptx::wgmma_pin(a[block][1]);
  }
}

// A warpgroup's sums: its tiles of the thread block's part of K. `slab`: which 16 rows this warp
// has; `offsets`: of their scales.
template <class K>
__device__ __forceinline__ void multiply_sm90(float (&sums)[K::tokens / 2],
                                              const DecodeParameters& p, const RingsSm90& rings,
                                              int tiles, int part, int slab, int lane,
                                              std::uint32_t offsets) {
  using Format = typename K::Format;
  using Bits = DecodeBits<Format>;
  const int parts = 1 << p.log2_parts, upper = slab % 2;
  const std::uint32_t pick = upper == 0 ? 0x4140u : 0x4342u;
  constexpr int block_scales = K::layout.block_scales();  // of 32 columns: of both steps, or each
  const std::uint32_t scales_at = K::layout.code_bytes() + lane / 4 * (block_scales * 16);
  // Where this part is in the rings: memory, barriers, and the parity of the phase to wait for. As
  // addresses, from values that the compiler cannot work out anew in each turn.
  const std::uint32_t tile_step = same(p.row_tiles * K::tile_bytes << p.log2_parts);
  const std::uint32_t first_tile =
      same(rings.weights + ((slab / 2 << p.log2_parts) + part) * K::tile_bytes);
  const std::uint32_t first_barrier = same(rings.barriers);
  const std::uint32_t end = same(rings.x_barriers);
  const std::uint32_t x_step = same(K::half_bytes * 2 / 16 << p.log2_parts);
  const std::uint32_t first_x = same(ptx::swizzled_start(rings.x + part * (2 * K::half_bytes)));
  const std::uint32_t x_barrier_step = same(2 * RingsSm90::pair_bytes << p.log2_parts);
  const std::uint32_t first_x_barrier = same(rings.x_barriers + part * 2 * RingsSm90::pair_bytes);
  const std::uint32_t end_of_x = same(rings.unused);
  std::uint32_t tile = first_tile, barrier = first_barrier, parity = 0;
  std::uint32_t x_start = first_x, x_barrier = first_x_barrier, x_parity = 0;
  // The barrier to tell that the half stage before this one is free: at first there is none.
  std::uint32_t x_before = same(rings.unused);
  constexpr int blocks = K::blocks_at_once, all = DecodeLayout::tile_blocks;
  std::uint32_t a[2][blocks][2][4] = {};  // [set][block][step][register]
  bool x_is_ready = false;
  ptx::wgmma_pin(sums);
#pragma unroll 1
  for (int left = (tiles - part + parts - 1) >> p.log2_parts; left > 0; --left) {
    ptx::mbarrier_wait(barrier, parity);
    std::uint32_t scale[block_scales][all];
#pragma unroll
    for (int j = 0; j < block_scales; ++j) {
      const uint4 v = read_shared<uint4>(tile + scales_at + j * 16);
      scale[j][0] = v.x, scale[j][1] = v.y, scale[j][2] = v.z, scale[j][3] = v.w;
    }
    std::uint32_t word[2][Format::bits / 2];
    read_words<K>(word[0], tile, upper, lane);
    // Asked before it is needed, since the answer takes its time.
    x_is_ready = ptx::mbarrier_test(x_barrier, x_parity);
#pragma unroll
    for (int first = 0; first < all; first += blocks) {
      const int set = first / blocks % 2;
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        const int block = first + i, of_two = block % 2;
        if (block + 1 < all) {
          read_words<K>(word[1 - of_two], tile + (block + 1) * K::layout.block_bytes(), upper,
                        lane);
        }
        std::uint32_t multipliers[block_scales];
#pragma unroll
        for (int j = 0; j < block_scales; ++j) {
          multipliers[j] = multipliers_of<K>(scale[j][block], pick, offsets);
        }
#pragma unroll
        for (int pair = 0; pair < 8; ++pair) {
          const std::uint32_t bits = decode_pair<Format, K::is_half>(
              word[of_two] + pair / Bits::pairs * Bits::words, pair % Bits::pairs);
          const std::uint32_t factors = multipliers[pair / 4 * block_scales / 2];
          const std::uint32_t factor =
              pair % 2 == 0 ? twice_half<0>(factors) : twice_half<1>(factors);
          a[set][i][pair / 4][pair % 4] = ptx::multiply_pair<K::is_half>(bits, factor);
        }
      }
      pin<K>(a[set]);
      if (first + blocks == all) {
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(barrier + RingsSm90::free);
        barrier += RingsSm90::pair_bytes, tile += tile_step;
        if (barrier == end) barrier = first_barrier, tile = first_tile, parity ^= 1;
      }
      const std::uint32_t x_half = x_barrier + first / 2 * RingsSm90::pair_bytes;
      if (first % 2 == 0) ptx::mbarrier_wait_unless(x_is_ready, x_half, x_parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < 2 * blocks; ++step) {
        const int at = 2 * first + step;  // 32 bytes of a token each, and four of them a box
        ptx::wgmma(typename K::Element{}, sums, a[set][step / 2][step % 2],
                   ptx::swizzled_descriptor(x_start + (at / 4 * K::half_bytes + at % 4 * 32) / 16));
      }
      ptx::wgmma_commit();
      if (first + blocks == all / 2) {
        x_is_ready = ptx::mbarrier_test(x_barrier + RingsSm90::pair_bytes, x_parity);
      }
      ptx::wgmma_wait<1>();
      pin<K>(a[1 - set]);
      if (first % 2 == 0) {
        if (lane == 0) ptx::mbarrier_arrive(x_before);
        x_before = x_half + RingsSm90::free;
      }
    }
    x_start += x_step, x_barrier += x_barrier_step;
    if (x_barrier >= end_of_x) x_start = first_x, x_barrier = first_x_barrier, x_parity ^= 1;
  }
  ptx::wgmma_wait<0>();
  pin<K>(a[1]);
  ptx::wgmma_pin(sums);
}

// Which of the thread block's rows and of its parts of K a warp has: warpgroups of other rows, then
// those of other parts.
template <class K>
struct Seat {
  int part, group, slab;

  __device__ __forceinline__ Seat(const DecodeParameters& p, int warp) {
    constexpr int warpgroups = K::warps / 4;
    part = (warp / 4 << p.log2_parts) / warpgroups;
    group = warp / 4 & ((warpgroups >> p.log2_parts) - 1);
    slab = group * 4 + warp % 4;
  }
};

}  // namespace few

// Grid: see Place.
template <class K>
__global__ void __launch_bounds__(K::all_threads, K::tenants)
    gemm_decode_sm90_kernel(const __grid_constant__ DecodeParameters p,
                            const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const std::uint32_t base = __shfl_sync(0xFFFFFFFFu, ptx::shared_address(shared), 0);
  // The same in all lanes, which the compiler shall know.
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = static_cast<int>(blockIdx.x) & ((1 << p.log2_ranks) - 1);
  const few::Place place = few::place_of<K>(p);
  if (K::is_grouped && place.is_over) return;
  const std::int64_t first_down = place.first_down, batch = place.batch;
  const int first_token = place.first_token;
  // Of the thread block, along K.
  const int first = p.tiles * rank >> p.log2_ranks;
  const int tiles = (p.tiles * (rank + 1) >> p.log2_ranks) - first;
  const int row_groups = p.row_tiles / 2;
  const std::uint8_t* weights = p.weights + batch * p.weight_batch_bytes;
  const few::RingsSm90 rings(base, p, K::half_bytes);

  if constexpr (!K::is_grouped) let_dependents_start();
  if (K::tenants == 2 && first_down >= p.tiles_down) {
    // Here to hold a place: see DecodePlan::idle_groups.
    wait_for_kernels_ahead();
    return;
  }
  if (warp >= K::warps) {
    const auto rows =
        static_cast<int>(lower_of<std::int64_t>(p.row_tiles, p.tiles_down - first_down));
    few::WeightsSm90<K> producer{p, rings, weights + (first_down * p.tiles + first) * K::tile_bytes,
                                 rows, tiles};
    const int turns = (tiles + (1 << p.log2_parts) - 1) >> p.log2_parts;
    const int early = K::tenants == 2 && turns >= 16 ? 2 : 1;
    if (warp == K::warps) {
      few::init_rings<K>(p, rings, 4 * row_groups, lane);
      // Weights do not depend on what the kernel before this one computes. The first turn alone, or
      // two of many, since that kernel's reads and the first tokens would wait behind more.
      if (ptx::elect()) producer.produce(0, min(turns, early));
      __syncwarp();
    }
    __syncthreads_or(0);  // nothing against ordinary outputs: see is_direct
    if (p.log2_ranks > 0) few::cluster_arrive_relaxed();
    if constexpr (K::moves_registers) ptx::give_registers<K::producer_registers>();
    if (warp == K::warps && ptx::elect()) {
      wait_for_kernels_ahead();
      producer.produce(min(turns, early), turns);
    } else if (warp == K::warps + 1 && ptx::elect()) {
      wait_for_kernels_ahead();
      few::produce_tokens_sm90<K>(p, rings, map, K::tile_boxes * first, K::tile_boxes * tiles,
                                  first_token, p.x_batch_bytes == 0 ? 0 : static_cast<int>(batch));
    }
    __syncwarp();
    if (p.log2_ranks > 0) few::cluster_wait();
    return;
  }
  const few::Seat<K> seat(p, warp);
  const std::int64_t first_row = first_down * DecodeLayout::tile_rows;
  const std::int64_t row = first_row + seat.slab * 16 + lane / 4;
  const bool is_plain = few::may_finish_directly<K>(p, weights, first_down, row);
  const std::uint32_t offsets = few::scale_offsets<K>(p, weights, row);
  // Folded: whether a row's scales are so far apart that a multiplication of halves does not do.
  bool is_far = false;
  if constexpr (K::is_folded && !K::scales_sums) is_far = few::is_far_row<K>(p, weights, row);
  const int is_any = __syncthreads_or(K::is_folded ? is_far : !is_plain);
  const bool is_direct = !K::is_folded && is_any == 0;
  if (p.log2_ranks > 0) few::cluster_arrive_relaxed();
  if constexpr (K::moves_registers) ptx::take_registers<K::consumer_registers>();
  float sums[K::tokens / 2] = {};
  if constexpr (!K::is_folded) {
    few::multiply_sm90<K>(sums, p, rings, tiles, seat.part, seat.slab, lane, offsets);
  } else if constexpr (K::scales_sums) {
    few::multiply_folded_blocks<K>(sums, p, rings, tiles, seat.part, seat.slab, lane, offsets);
  } else if (is_any == 0) {
    few::multiply_folded<K, false>(sums, p, rings, tiles, seat.part, seat.slab, lane, offsets);
  } else {
    few::multiply_folded<K, true>(sums, p, rings, tiles, seat.part, seat.slab, lane, offsets);
  }
  if (p.log2_ranks > 0) few::cluster_wait();  // the others have started
  wait_for_kernels_ahead();
  const std::uint32_t memory = base + DecodeShape::barrier_bytes, inbox_barrier = memory - 8;
  CommonFactor factor = few::factor_of<K>(p, batch);
  if (K::is_folded && is_any != 0) factor.exponent -= few::far_exponent;
  if (is_direct && factor.exponent == 0) {
    // Worked out again, lest it take registers of the loop.
    const int thread = ptx::thread_index();
    const few::Seat<K> own(p, thread / 32);
    const int exchanged = K::Shape::exchanged_bytes(K::tokens, K::Shape::group_tiles, p.log2_parts);
    const std::uint32_t inbox =
        base + p.shared_bytes - K::Shape::direct_inbox_bytes(K::tokens, p.row_tiles, p.log2_ranks);
    const bool is_apart =
        rings.weights + p.stages * (p.row_tiles * K::tile_bytes << p.log2_parts) <= inbox;
    const few::DirectSm90<K> direct{p,
                                    weights,
                                    batch,
                                    first_row + own.slab * 16,
                                    first_token,
                                    few::tokens_at<K>(p, first_token, place.count),
                                    own.part,
                                    rank,
                                    thread,
                                    memory + own.group * exchanged + thread % 128 * 16,
                                    inbox + thread * 16,
                                    inbox_barrier};
    direct.run(sums, factor.fraction, is_apart);
    return;
  }
  few::FinishSm90<K> finish{{p, weights, batch, first_row, first_token, place.count, 0, factor},
                            memory,
                            inbox_barrier,
                            rank,
                            static_cast<int>(threadIdx.x)};
  if (p.log2_ranks > 0) {
    if (threadIdx.x == 0) finish.expect();
    few::cluster_arrive_relaxed();
  }
  finish.prepare();
  finish.prepare_more();

  // The sums take the place of the rings, which are read to the end.
  few::sync_threads<K::threads>();
  finish.put(sums, seat.part, seat.slab, lane);
  few::sync_threads<K::threads>();
  if (p.log2_ranks > 0) {
    // The others are done with their rings.
    few::cluster_wait();
    finish.send();
  }
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
