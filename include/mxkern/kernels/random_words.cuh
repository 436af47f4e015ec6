// mxkern/kernels/random_words.cuh: the random words of octets, with what calls of Philox share.
#pragma once

#include <cstdint>

#include "mxkern/core/philox.h"
#include "mxkern/kernels/block_amax.cuh"
#include "mxkern/numerics/rounding.h"

namespace mxkern::kernels {

// Whether the elements of a tensor share calls in fours that lie in a row, and all calls the upper
// half of the counter: then there is no question before a call, and many calls overlap.
MXKERN_HOST_DEVICE bool words_are_whole(std::int64_t elements, std::int64_t columns) {
  return columns % 4 == 0 && elements / 4 <= std::int64_t{1} << 32;
}

// The upper half of the counter, or where it lies.
struct RandomOffset {
  std::uint64_t value;
  const std::uint64_t* at;  // if not null

  // After wait_for_kernels_ahead.
  __device__ __forceinline__ std::uint64_t get() const { return at == nullptr ? value : *at; }
  friend constexpr bool operator==(const RandomOffset&, const RandomOffset&) = default;
};

// The words of a thread's elements; nothing where elements are rounded to nearest.
template <Rounding R>
class RandomWords {
 public:
  __device__ __forceinline__ RandomWords(const PhiloxKeys&, const RandomOffset&) {}
  __device__ __forceinline__ void whole_octet(std::uint32_t, std::uint32_t (&)[8]) const {}
  __device__ __forceinline__ void octet(std::uint64_t, std::uint64_t, std::uint32_t (&)[8]) {}
  __device__ __forceinline__ void column_pair(std::uint64_t, std::uint64_t,
                                              std::uint32_t (&)[2][8]) {}
};

template <>
class RandomWords<Rounding::stochastic> {
 public:
  // The keys are read where they lie, as operands: a kernel's arguments cost no registers. So is
  // the offset, each time that it is needed.
  __device__ __forceinline__ RandomWords(const PhiloxKeys& keys, const RandomOffset& offset)
      : keys_(keys), offset_(offset) {
    start(0);
  }

  // Of the eight adjacent elements from 4 * counter on, where words_are_whole.
  __device__ __forceinline__ void whole_octet(std::uint32_t counter,
                                              std::uint32_t (&words)[8]) const {
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      const Philox4 four = call_of_low(counter + i);
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) words[4 * i + lane] = four.lane[lane];
    }
  }

  // Of eight elements whose logical indices start at `index` and step by `stride`.
  __device__ __forceinline__ void octet(std::uint64_t index, std::uint64_t stride,
                                        std::uint32_t (&words)[8]) {
    if (stride == 1 && index % 4 == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Philox4 four = call(index / 4 + i);
#pragma unroll
        for (int lane = 0; lane < 4; ++lane) words[4 * i + lane] = four.lane[lane];
      }
      return;
    }
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t own = index + i * stride;
      const Philox4 four = call(own / 4);
      const auto lane = static_cast<unsigned>(own % 4);
      const std::uint32_t word = lane == 0   ? four.lane[0]
                                 : lane == 1 ? four.lane[1]
                                 : lane == 2 ? four.lane[2]
                                             : four.lane[3];
#pragma unroll
      for (int k = 0; k < 8; ++k) words[k] = k == i ? word : words[k];
    }
  }

  // Of eight rows of two adjacent columns, whose first element has logical index `index`. Four
  // columns share a call where rows hold a multiple of four elements: then the two threads that
  // have them make the calls of every other row and exchange words.
  __device__ __forceinline__ void column_pair(std::uint64_t index, std::uint64_t columns,
                                              std::uint32_t (&words)[2][8]) {
    if (columns % 4 != 0) {
      octet(index, columns, words[0]);
      octet(index + 1, columns, words[1]);
      return;
    }
    const bool odd = (threadIdx.x & 1) != 0;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const Philox4 four = call((index + (odd ? i + 1 : i) * columns) / 4);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const std::uint32_t kept = odd ? four.lane[2 + k] : four.lane[k];
        const std::uint32_t given = odd ? four.lane[k] : four.lane[2 + k];
        const std::uint32_t other = __shfl_xor_sync(full_warp, given, 1);
        words[k][i] = odd ? other : kept;
        words[k][i + 1] = odd ? kept : other;
      }
    }
  }

 private:
  // Of the first two rounds, the products of all words but the counter's lowest: they change every
  // 2^32 calls.
  __device__ __forceinline__ void start(std::uint32_t high) {
    const std::uint64_t offset = offset_.get();
    const std::uint64_t first = std::uint64_t{Philox::multiplier1} * low_of(offset);
    const std::uint64_t second =
        std::uint64_t{Philox::multiplier0} * (high_of(first) ^ high ^ keys_.key0[0]);
    high_ = high;
    first_ = low_of(first) ^ keys_.key0[1];
    second_ = high_of(second) ^ keys_.key1[1];
    third_ = low_of(second);
    fourth_ = high_of(offset) ^ keys_.key1[0];
  }

  // philox4x32 of the counter.
  __device__ __forceinline__ Philox4 call(std::uint64_t counter) {
    if (high_of(counter) != high_) start(high_of(counter));
    return call_of_low(low_of(counter));
  }

  __device__ __forceinline__ Philox4 call_of_low(std::uint32_t counter) const {
    const std::uint64_t first = std::uint64_t{Philox::multiplier0} * counter;
    const std::uint64_t second = std::uint64_t{Philox::multiplier1} * (high_of(first) ^ fourth_);
    std::uint32_t c0 = high_of(second) ^ first_, c1 = low_of(second);
    std::uint32_t c2 = second_ ^ low_of(first), c3 = third_;
#pragma unroll
    for (int round = 2; round < Philox::rounds; ++round) {
      const std::uint64_t p0 = std::uint64_t{Philox::multiplier0} * c0;
      const std::uint64_t p1 = std::uint64_t{Philox::multiplier1} * c2;
      c0 = high_of(p1) ^ c1 ^ keys_.key0[round];
      c1 = low_of(p1);
      c2 = high_of(p0) ^ c3 ^ keys_.key1[round];
      c3 = low_of(p0);
    }
    return {{c0, c1, c2, c3}};
  }

  __device__ static std::uint32_t low_of(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  __device__ static std::uint32_t high_of(std::uint64_t x) {
    return static_cast<std::uint32_t>(x >> 32);
  }

  const PhiloxKeys& keys_;
  const RandomOffset& offset_;
  std::uint32_t high_, first_, second_, third_, fourth_;
};

}  // namespace mxkern::kernels
