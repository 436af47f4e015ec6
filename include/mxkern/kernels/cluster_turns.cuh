// mxkern/kernels/cluster_turns.cuh: which tile a cluster of thread blocks that stays computes next.
#pragma once

#include <cstdint>

#include "mxkern/kernels/ptx/cluster.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"

namespace mxkern::kernels {

// Tiles come in turns, so many clusters apart; or, where they take unlike time, a cluster counts one
// for itself when it begins with the one before. Then the first thread block's loading warp does,
// and tells those that ask: the other block's loading warp, and a warp more of each. Two answers may
// be on their way. A warp has one of these for itself.
class ClusterTurns {
 public:
  static constexpr int barriers = 4, answer_bytes = 2 * sizeof(int);

  // counter: a word that is 0 when the kernel starts; null: in turns. answers, barrier: addresses of
  // answer_bytes and of so many barriers.
  __device__ __forceinline__ ClusterTurns(std::uint32_t* counter, int clusters, int blocks,
                                          int rank, std::uint32_t answers, std::uint32_t barrier)
      : counter_(counter),
        clusters_(clusters),
        blocks_(blocks),
        rank_(rank),
        answers_(answers),
        barrier_(barrier) {}

  // One thread.
  __device__ __forceinline__ static void init(std::uint32_t barrier, int blocks) {
    for (int slot = 0; slot < 2; ++slot) {
      ptx::mbarrier_init(barrier + slot * 8, 1);
      ptx::mbarrier_init(barrier + 16 + slot * 8, 2 * blocks - 1);
    }
  }

  // The tile behind `tile`, for a loading warp: once for each tile that there is.
  __device__ __forceinline__ int take(int tile) {
    if (counter_ == nullptr) return tile + clusters_;
    if (rank_ == 0) return tell();
    if (lane() == 0) ptx::mbarrier_expect(full(), sizeof(int));
    return hear();
  }

  // The same for another warp.
  __device__ __forceinline__ int after(int tile) {
    return counter_ == nullptr ? tile + clusters_ : hear();
  }

 private:
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ int slot() const { return number_ % 2; }
  __device__ __forceinline__ std::uint32_t parity() const { return number_ / 2 % 2; }
  __device__ __forceinline__ std::uint32_t full() const { return barrier_ + slot() * 8; }
  __device__ __forceinline__ std::uint32_t empty() const { return barrier_ + 16 + slot() * 8; }
  __device__ __forceinline__ std::uint32_t answer() const { return answers_ + slot() * 4; }

  __device__ __forceinline__ int tell() {
    ptx::mbarrier_wait(empty(), parity() ^ 1);
    int next = 0;
    if (lane() == 0) {
      next = clusters_ + static_cast<int>(atomicAdd(counter_, 1u));
      ptx::mbarrier_expect(full(), sizeof(int));
    }
    next = __shfl_sync(0xFFFFFFFFu, next, 0);
    if (lane() < blocks_) {
      const auto block = static_cast<std::uint32_t>(lane());
      ptx::send_word(ptx::address_in_block(answer(), block), ptx::address_in_block(full(), block),
                     static_cast<std::uint32_t>(next));
    }
    ++number_;
    return next;
  }

  __device__ __forceinline__ int hear() {
    ptx::mbarrier_wait(full(), parity());
    const int next = static_cast<int>(ptx::load_shared(answer()));
    __syncwarp();
    ptx::mbarrier_arrive_remote(ptx::address_in_block(empty(), 0), lane() == 0);
    ++number_;
    return next;
  }

  std::uint32_t* counter_;
  int clusters_, blocks_, rank_;
  std::uint32_t answers_, barrier_;
  int number_ = 0;  // of answers
};

}  // namespace mxkern::kernels
