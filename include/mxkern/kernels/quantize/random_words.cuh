// mxkern/kernels/quantize/random_words.cuh: the random words of octets, with what calls of Philox
// share.
#pragma once

#include <cstdint>

#include "mxkern/core/philox.h"
#include "mxkern/kernels/quantize/block_amax.cuh"
#include "mxkern/numerics/rounding.h"

namespace mxkern::kernels {

// Returns whether each octet of a row has one Philox call of its own, and all calls share the upper
// half of the counter. Then no call waits for a branch, and many overlap.
MXKERN_HOST_DEVICE bool words_are_whole(std::int64_t elements, std::int64_t columns) {
  return columns % Philox::elements == 0 && elements / Philox::elements <= std::int64_t{1} << 32;
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
  __device__ __forceinline__ Philox4 whole_octet(std::uint32_t) const { return {}; }
  __device__ __forceinline__ Philox4 octet(std::uint64_t) { return {}; }
  __device__ __forceinline__ void column_pair(std::uint64_t, std::uint64_t, Philox4 (&)[2]) {}
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

  // Returns the words of the eight adjacent elements from 8 * counter on, by philox4x32. Requires
  // words_are_whole.
  __device__ __forceinline__ Philox4 whole_octet(std::uint32_t counter) const {
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

  // Returns the words of eight adjacent elements, the first of which has logical index `index`.
  __device__ __forceinline__ Philox4 octet(std::uint64_t index) {
    const Philox4 first = call(index / Philox::elements);
    const auto skipped = static_cast<unsigned>(index % Philox::elements);
    if (skipped == 0) return first;
    const Philox4 second = call(index / Philox::elements + 1);
    std::uint32_t lanes[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      lanes[i] = first.lane[i];
      lanes[4 + i] = second.lane[i];
    }
#pragma unroll
    for (int step = 2; step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i + step < 8; ++i) {
        lanes[i] = (skipped / 2 & step) != 0 ? lanes[i + step] : lanes[i];
      }
    }
    Philox4 words;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words.lane[i] = __funnelshift_r(lanes[i], lanes[i + 1], skipped % 2 * 16);
    }
    return words;
  }

  // Finds the words of eight rows of two adjacent columns, whose first element has logical index
  // `index`. If rows hold a multiple of eight elements, eight columns share a call: the four
  // threads that have them make the calls of every fourth row each and exchange words.
  __device__ __forceinline__ void column_pair(std::uint64_t index, std::uint64_t columns,
                                              Philox4 (&words)[2]) {
    std::uint32_t rows[8];  // the words of both columns
    if (columns % Philox::elements == 0) {
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        const Philox4 own = call((index + (i + threadIdx.x % 4) * columns) / Philox::elements);
#pragma unroll
        for (int k = 0; k < 4; ++k) rows[i + k] = own.lane[k];
        exchange<1>(rows[i], rows[i + 1]);
        exchange<1>(rows[i + 2], rows[i + 3]);
        exchange<2>(rows[i], rows[i + 2]);
        exchange<2>(rows[i + 1], rows[i + 3]);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t pair = adjacent(index + i * columns);
#pragma unroll
        for (int k = 0; k < 8; ++k) rows[k] = k == i ? pair : rows[k];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[0].lane[i] = __byte_perm(rows[2 * i], rows[2 * i + 1], 0x5410);
      words[1].lane[i] = __byte_perm(rows[2 * i], rows[2 * i + 1], 0x7632);
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
    return whole_octet(low_of(counter));
  }

  // The words of two adjacent elements.
  __device__ __forceinline__ std::uint32_t adjacent(std::uint64_t index) {
    const Philox4 own = call(index / Philox::elements);
    const auto at = static_cast<unsigned>(index % Philox::elements);
    const std::uint32_t low = lane_of(own, at / 2);
    if (at % 2 == 0) return low;
    const std::uint32_t high = at == Philox::elements - 1
                                   ? call(index / Philox::elements + 1).lane[0]
                                   : lane_of(own, at / 2 + 1);
    return __funnelshift_r(low, high, 16);
  }

  __device__ static std::uint32_t lane_of(const Philox4& words, unsigned i) {
    return i == 0 ? words.lane[0] : i == 1 ? words.lane[1] : i == 2 ? words.lane[2] : words.lane[3];
  }

  // Swaps the lower thread's `second` with the upper thread's `first`, of two threads `Lane` apart.
  template <unsigned Lane>
  __device__ static void exchange(std::uint32_t& first, std::uint32_t& second) {
    const bool upper = (threadIdx.x & Lane) != 0;
    const std::uint32_t other = __shfl_xor_sync(full_warp, upper ? first : second, Lane);
    first = upper ? other : first;
    second = upper ? second : other;
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
