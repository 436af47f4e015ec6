// mxkern/kernels/gemm_sm90.cuh: products of row-scaled matrices on Hopper's tensor cores.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/gemm_sm90_finish.cuh"
#include "mxkern/kernels/gemm_sm90_order.cuh"
#include "mxkern/kernels/ptx/cluster.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/tma.cuh"
#include "mxkern/kernels/ptx/wgmma.cuh"

namespace mxkern::kernels {

// A thread block computes tiles of 64 rows for each of its `Groups` warpgroups and Columns columns;
// one more warpgroup has a thread that loads. Loads bring 128 bytes of K at a time for every row of
// both operands. A cluster's blocks need the same rows of one operand, the larger side of the tile;
// each loads a part of them for all.
template <class LeftElement, class RightElement, int Groups, int Columns>
struct GemmSm90Config {
  using Left = LeftElement;
  using Right = RightElement;
  static constexpr int groups = Groups;
  static constexpr int rows = 64 * Groups;
  static constexpr int columns = Columns;
  static constexpr bool shares_left = rows >= columns;  // blocks of a cluster lie side by side
  static constexpr int cluster = 2;                     // at most
  // The tensor cores add FP8 products with 14 bits; sums of 128 go on in float32.
  static constexpr bool promotes = !std::is_same_v<Left, bfloat16>;
  static constexpr int k = promotes ? 128 : 64;  // elements in 128 bytes
  static constexpr int left_bytes = rows * 128, right_bytes = columns * 128;
  static constexpr int stage_bytes = left_bytes + right_bytes;
  static constexpr int left_box = shares_left ? rows / cluster : rows;
  static constexpr int right_box = shares_left ? columns : columns / cluster;
  using Finisher = Finish<rows, columns, groups == 2 ? 2 : 1>;
  static constexpr int staging_bytes = 4 * groups * Finisher::staging_bytes;
  static constexpr int factor_bytes = sizeof(typename Finisher::Factors);
  static constexpr int barrier_bytes = 128;
  static constexpr int other_bytes = staging_bytes + factor_bytes + barrier_bytes;
  static constexpr int stages = (227 * 1024 - other_bytes) / stage_bytes;
  static constexpr int shared_bytes = stages * stage_bytes + other_bytes;
  static_assert((2 * stages + 2) * sizeof(std::uint64_t) <= barrier_bytes, "room for all barriers");
  static constexpr int threads = 128 * (groups + 1);
  // Of 65536 registers: what a thread that multiplies has, and one that loads.
  static constexpr int consumer_registers = groups == 2 ? 232 : 160;
  static constexpr int producer_registers = groups == 2 ? 40 : 32;
};

// Which of two kernels on the same operands runs: see CoreGate.
struct GateParameters {
  const std::uint8_t *left_spreads, *right_spreads;  // null: all 0
  std::int64_t left_count, right_count;
  std::uint8_t left_limit, right_limit;
  bool is_open, wants_narrow;
};

struct GemmSm90Parameters {
  TileOrder order;
  int parts, steps;  // steps of K for each part
  bool left_batched, right_batched;
  GateParameters gate;
  FinishParameters finish;
};

// Whether one of the bytes exceeds the limit, as far as this thread has looked.
__device__ __forceinline__ bool exceeds(const std::uint8_t* bytes, std::int64_t count, int limit) {
  bool found = false;
  std::int64_t done = 0;
  if (reinterpret_cast<std::uintptr_t>(bytes) % 16 == 0) {
    const std::uint32_t limits = static_cast<std::uint32_t>(limit) * 0x01010101u;
    for (std::int64_t i = threadIdx.x; i < count / 16; i += blockDim.x) {
      const uint4 words = reinterpret_cast<const uint4*>(bytes)[i];
      found = found || __vcmpgtu4(words.x, limits) || __vcmpgtu4(words.y, limits) ||
              __vcmpgtu4(words.z, limits) || __vcmpgtu4(words.w, limits);
    }
    done = count / 16 * 16;
  }
  for (std::int64_t i = done + threadIdx.x; i < count; i += blockDim.x) {
    found = found || bytes[i] > limit;
  }
  return found;
}

__device__ __forceinline__ bool passes(const GateParameters& gate) {
  if (gate.is_open) return true;
  bool wide = false;
  if (gate.left_spreads) wide = exceeds(gate.left_spreads, gate.left_count, gate.left_limit);
  if (gate.right_spreads) {
    wide = exceeds(gate.right_spreads, gate.right_count, gate.right_limit) || wide;
  }
  return (__syncthreads_or(wide) == 0) == gate.wants_narrow;
}

// A ring of stages in shared memory and the side of it that a thread is on.
struct RingPosition {
  int stage = 0;
  std::uint32_t parity = 0;

  template <int Stages>
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <class Config>
struct GemmSm90 {
  const GemmSm90Parameters& p;
  const CUtensorMap &left_map, &right_map, &out_map;
  unsigned char* shared;
  std::uint64_t *full, *empty;  // of each stage
  std::uint64_t *factors_full, *factors_empty;
  typename Config::Finisher::Factors& factors;
  int blocks, rank;  // of the cluster

  struct Corner {
    int row, column, batch;
  };

  __device__ __forceinline__ Corner corner(int index) const {
    const TileOrder::Tile tile = p.order.at(index);
    const int down = Config::shares_left ? tile.down : tile.down * blocks + rank;
    const int right = Config::shares_left ? tile.right * blocks + rank : tile.right;
    return {down * Config::rows, right * Config::columns, tile.batch};
  }

  // One thread: loads the stages that the consumers have released.
  __device__ __forceinline__ void produce() const {
    RingPosition at;
    const int clusters = gridDim.x / blocks;
    for (int index = blockIdx.x / blocks; index < p.order.count(); index += clusters) {
      const Corner corner = this->corner(index);
      for (int part = 0; part < p.parts; ++part) {
        for (int step = 0; step < p.steps; ++step) {
          ptx::mbarrier_wait(&empty[at.stage], at.parity ^ 1);
          ptx::mbarrier_expect(&full[at.stage], Config::stage_bytes);
          load(at.stage, step * Config::k, part, corner);
          at.template advance<Config::stages>();
        }
      }
    }
  }

  __device__ __forceinline__ void load(int stage, int k, int part, const Corner& corner) const {
    unsigned char* left = shared + stage * Config::stage_bytes;
    unsigned char* right = left + Config::left_bytes;
    std::uint64_t* barrier = &full[stage];
    const int left_batch = p.left_batched ? corner.batch : 0;
    const int right_batch = p.right_batched ? corner.batch : 0;
#pragma unroll
    for (int i = 0; i < Config::rows / Config::left_box; ++i) {
      if (blocks > 1 && Config::shares_left && i != rank) continue;
      const int row = corner.row + i * Config::left_box;
      unsigned char* to = left + i * Config::left_box * 128;
      if (blocks > 1 && Config::shares_left) {
        ptx::tma_load_multicast(to, left_map, barrier, 3, k, row, part, left_batch);
      } else {
        ptx::tma_load(to, left_map, barrier, k, row, part, left_batch);
      }
    }
#pragma unroll
    for (int i = 0; i < Config::columns / Config::right_box; ++i) {
      if (blocks > 1 && !Config::shares_left && i != rank) continue;
      const int column = corner.column + i * Config::right_box;
      unsigned char* to = right + i * Config::right_box * 128;
      if (blocks > 1 && !Config::shares_left) {
        ptx::tma_load_multicast(to, right_map, barrier, 3, k, column, 0, right_batch);
      } else {
        ptx::tma_load(to, right_map, barrier, k, column, 0, right_batch);
      }
    }
  }

  // One warp: fetches each tile's factors once the consumers are through with those before.
  __device__ __forceinline__ void produce_factors() const {
    const RowFactor common = common_factor(p.finish);
    const int clusters = gridDim.x / blocks;
    std::uint32_t parity = 1;
    for (int index = blockIdx.x / blocks; index < p.order.count(); index += clusters) {
      const Corner corner = this->corner(index);
      ptx::mbarrier_wait(factors_empty, parity);
      factors.fetch(p.finish, common, corner.row, corner.column, corner.batch);
      ptx::mbarrier_arrive(factors_full);
      parity ^= 1;
    }
  }

  // A warp has read the stage: tells the producers that write into it.
  __device__ __forceinline__ void release(int stage) const {
    const int lane = threadIdx.x % 32;
    if (blocks == 1) {
      if (lane == 0) ptx::mbarrier_arrive(&empty[stage]);
    } else if (lane < blocks) {
      ptx::mbarrier_arrive(&empty[stage], lane);
    }
  }

  __device__ __forceinline__ static void multiply(float (&sums)[Config::columns / 2],
                                                  std::uint64_t left, std::uint64_t right,
                                                  bool adds) {
    constexpr int steps = 4, step_bytes = 32;
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      ptx::wgmma(typename Config::Left{}, typename Config::Right{}, sums,
                 left + i * step_bytes / 16, right + i * step_bytes / 16, i > 0 || adds);
    }
    ptx::wgmma_commit();
  }

  static constexpr int count = Config::columns / 2;  // sums of a thread in 64 rows

  __device__ __forceinline__ const unsigned char* left_of(int stage, int row) const {
    return shared + stage * Config::stage_bytes + row * 128;
  }

  __device__ __forceinline__ const unsigned char* right_of(int stage) const {
    return shared + stage * Config::stage_bytes + Config::left_bytes;
  }

  // Starts the products of the stage that is next, of the 64 rows that begin with `row`.
  __device__ __forceinline__ void start(float (&sums)[count], int stage, int row, bool adds) const {
    ptx::wgmma_pin(sums);
    ptx::wgmma_fence();
    multiply(sums, ptx::swizzled_descriptor(left_of(stage, row)),
             ptx::swizzled_descriptor(right_of(stage)), adds);
    ptx::wgmma_pin(sums);
  }

  template <int Pending>
  __device__ __forceinline__ static void wait_for(float (&sums)[count]) {
    ptx::wgmma_wait<Pending>();
    ptx::wgmma_pin(sums);
  }

  __device__ __forceinline__ static void add(float (&sums)[count], const float (&more)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) sums[i] += more[i];
  }

  // The tensor cores accumulate; a stage is free when the next one's products are under way.
  __device__ __forceinline__ void sum_directly(float (&sums)[count], int steps, int row,
                                               RingPosition& at) const {
    int before = 0;
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(&full[at.stage], at.parity);
      start(sums, at.stage, row, true);
      wait_for<1>(sums);
      if (step > 0) release(before);
      before = at.stage;
      at.template advance<Config::stages>();
    }
    wait_for<0>(sums);
    if (steps > 0) release(before);
  }

  // The products of one step are under way while those of the step before are added.
  __device__ __forceinline__ void sum_in_two_places(float (&sums)[count], int steps, int row,
                                                    RingPosition& at) const {
    if (steps == 0) return;
    float even[count], odd[count];
    ptx::mbarrier_wait(&full[at.stage], at.parity);
    start(even, at.stage, row, false);
    int step = 1;
    const auto next = [&](float(&under_way)[count], float(&done)[count]) {
      const int before = at.stage;
      at.template advance<Config::stages>();
      ptx::mbarrier_wait(&full[at.stage], at.parity);
      start(under_way, at.stage, row, false);
      wait_for<1>(done);
      release(before);
      add(sums, done);
    };
    for (; step + 1 < steps; step += 2) {
      next(odd, even);
      next(even, odd);
    }
    if (step < steps) next(odd, even);
    if (step < steps) {
      wait_for<0>(odd);
      add(sums, odd);
    } else {
      wait_for<0>(even);
      add(sums, even);
    }
    release(at.stage);
    at.template advance<Config::stages>();
  }

  // The other warpgroups' products are under way while this one adds.
  __device__ __forceinline__ void sum_in_turns(float (&sums)[count], int steps, int row,
                                               RingPosition& at) const {
    for (int step = 0; step < steps; ++step) {
      float partial[count];
      ptx::mbarrier_wait(&full[at.stage], at.parity);
      start(partial, at.stage, row, false);
      wait_for<0>(partial);
      release(at.stage);
      add(sums, partial);
      at.template advance<Config::stages>();
    }
  }

  // A warpgroup: multiplies its rows of each tile.
  __device__ __forceinline__ void consume(int warpgroup) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned char* staging =
        shared + Config::stages * Config::stage_bytes + warp * Config::Finisher::staging_bytes;
    typename Config::Finisher finish{p.finish, out_map, staging, common_factor(p.finish), lane};
    const int own_rows = warpgroup * 64;
    const int clusters = gridDim.x / blocks;
    const int steps = p.parts * p.steps;
    RingPosition at;
    std::uint32_t parity = 0;
    for (int index = blockIdx.x / blocks; index < p.order.count(); index += clusters) {
      float sums[count] = {};
      if constexpr (!Config::promotes) {
        sum_directly(sums, steps, own_rows, at);
      } else if constexpr (Config::groups == 2) {
        sum_in_two_places(sums, steps, own_rows, at);
      } else {
        sum_in_turns(sums, steps, own_rows, at);
      }
      const Corner corner = this->corner(index);
      ptx::mbarrier_wait(factors_full, parity);
      parity ^= 1;
      finish.tile(sums, factors, own_rows + warp % 4 * 16, corner.row, corner.column, corner.batch);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(factors_empty);
    }
    finish.wait();
  }

  __device__ __forceinline__ void run() const {
    if (threadIdx.x == 0) {
      ptx::prefetch_tensor_map(left_map);
      ptx::prefetch_tensor_map(right_map);
      if (p.finish.stores_boxes) ptx::prefetch_tensor_map(out_map);
      for (int i = 0; i < Config::stages; ++i) {
        ptx::mbarrier_init(&full[i], 1);
        ptx::mbarrier_init(&empty[i], 4 * Config::groups * blocks);
      }
      ptx::mbarrier_init(factors_full, 32);
      ptx::mbarrier_init(factors_empty, 4 * Config::groups);
      ptx::fence_mbarrier_init();
    }
    if (blocks > 1) {
      ptx::cluster_sync();
    } else {
      __syncthreads();
    }
    // From one lane for all, so that the compiler keeps what follows from it in uniform registers.
    const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 128), 0);
    if (warpgroup == Config::groups) {
      ptx::give_registers<Config::producer_registers>();
      const int thread = threadIdx.x % 128;
      if (thread == 0) produce();
      if (thread / 32 == 1) produce_factors();
      __syncwarp();
    } else {
      ptx::take_registers<Config::consumer_registers>();
      consume(warpgroup);
    }
    // A block's memory stays until nobody in the cluster writes to it any more.
    if (blocks > 1) ptx::cluster_sync();
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::threads, 1)
    gemm_sm90(const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right,
              const __grid_constant__ CUtensorMap out,
              const __grid_constant__ GemmSm90Parameters parameters) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  if (!passes(parameters.gate)) return;
  using Factors = typename Config::Finisher::Factors;
  unsigned char* after_staging =
      shared + Config::stages * Config::stage_bytes + Config::staging_bytes;
  auto* barriers = reinterpret_cast<std::uint64_t*>(after_staging);
  const GemmSm90<Config> block{parameters,
                               left,
                               right,
                               out,
                               shared,
                               barriers,
                               barriers + Config::stages,
                               barriers + 2 * Config::stages,
                               barriers + 2 * Config::stages + 1,
                               *reinterpret_cast<Factors*>(after_staging + Config::barrier_bytes),
                               static_cast<int>(ptx::cluster_size()),
                               static_cast<int>(ptx::rank_in_cluster())};
  block.run();
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
