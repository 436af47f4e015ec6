// mxkern/kernels/experts/combine.cuh: the sums of the rows of each token, in the order of the rows.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/device/runtime_dtype.cuh"
#include "mxkern/kernels/device/vector_io.cuh"

namespace mxkern::kernels {

inline constexpr int combine_threads = 128;

// So many rows of a token are listed. A token with more of them is looked for among all rows.
inline constexpr int listed_rows = 16;

// Up to so many rows, and tokens, each thread block looks for those of its token, which takes less
// time than a kernel that lists them for all.
inline constexpr std::int64_t few_rows = 1024;

struct CombineParameters {
  const std::int32_t* rows;  // [count]: the token of each, -1 for none
  std::int64_t count;
  const std::int32_t* end;  // of the rows that count, on the device; null: count
  const void* y;
  std::int64_t y_row_stride;
  const float* weights;  // null: 1
  void* out;
  DType out_dtype;
  std::int64_t out_row_stride;
  std::int64_t tokens, columns;
  // Null where there are few rows.
  std::int32_t* counts;    // [tokens + 1], zeros at first; the last one: whether a number is wrong
  std::int32_t* lists;     // [tokens, listed_rows], in any order
  bool vectors;            // rows of y start on 16 bytes
  bool rows_are_complete;  // they and the end, before the kernel ahead is over
};

// The rows that count; -1 where the number of them is wrong.
__device__ __forceinline__ std::int64_t rows_to_combine(const CombineParameters& p) {
  if (p.end == nullptr) return p.count;
  const std::int64_t end = *p.end;
  return end >= 0 && end <= p.count ? end : -1;
}

// Lists the rows of each token.
static __global__ void __launch_bounds__(combine_threads)
    list_rows_kernel(const __grid_constant__ CombineParameters p) {
  wait_for_kernels_ahead();
  let_dependents_start();
  const std::int64_t end = rows_to_combine(p);
  if (end < 0) p.counts[p.tokens] = 1;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * combine_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * combine_threads + threadIdx.x;
       i < end; i += step) {
    const std::int64_t token = p.rows[i];
    if (token == -1) continue;
    if (token < 0 || token >= p.tokens) {
      p.counts[p.tokens] = 1;
      continue;
    }
    const int place = atomicAdd(p.counts + token, 1);
    if (place < listed_rows) {
      p.lists[token * listed_rows + place] = static_cast<std::int32_t>(i);
    }
  }
}

// Eight columns of a token's sum.
template <class T>
struct CombinedOctet {
  const CombineParameters& p;
  std::int64_t column, left;  // left: columns from it on; none for a thread without a sum
  float sums[8] = {};

  __device__ __forceinline__ void add(std::int64_t row) {
    if (left <= 0) return;
    const T* const from = static_cast<const T*>(p.y) + row * p.y_row_stride + column;
    const float weight = p.weights == nullptr ? 1.0f : p.weights[row];
    float values[8];
    unpack(load_guarded(from, left, p.vectors), values);
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = __fadd_rn(sums[i], __fmul_rn(weight, values[i]));
  }

  __device__ __forceinline__ void store(std::int64_t token) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < left) {
        store_from_float(p.out, p.out_dtype, token * p.out_row_stride + column + i, sums[i]);
      }
    }
  }
};

// Adds up a token's rows: those of `sorted`, or all that say so, where there are more.
template <class T>
__device__ __forceinline__ void add_rows(CombinedOctet<T>& octet, std::int64_t token, int count,
                                         const std::int32_t* sorted) {
  if (count <= listed_rows) {
    for (int i = 0; i < count; ++i) octet.add(sorted[i]);
    return;
  }
  const CombineParameters& p = octet.p;
  const std::int64_t end = rows_to_combine(p);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t first = 0; first < end; first += 32) {
    const bool is_own = first + lane < end && p.rows[first + lane] == token;
    unsigned found = __ballot_sync(0xFFFFFFFFu, is_own);
    for (; found != 0; found &= found - 1) octet.add(first + __ffs(static_cast<int>(found)) - 1);
  }
}

// The rows of a token: how many, and the first of them in any order; and whether a number is wrong.
struct TokenRows {
  int count;
  const std::int32_t* list;
  bool is_wrong;
};

__device__ __forceinline__ TokenRows listed_of(const CombineParameters& p, std::int64_t token) {
  return {p.counts[token], p.lists + token * listed_rows, p.counts[p.tokens] != 0};
}

// The same by all threads of a thread block, of few rows. `count` is theirs.
__device__ __forceinline__ TokenRows look_for(const CombineParameters& p, std::int64_t token,
                                              std::int32_t (&list)[listed_rows], int& count) {
  const std::int64_t end = rows_to_combine(p);
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  bool is_wrong = end < 0;
  for (std::int64_t i = threadIdx.x; i < end; i += combine_threads) {
    const std::int64_t found = p.rows[i];
    is_wrong = is_wrong || found < -1 || found >= p.tokens;
    if (found != token) continue;
    const int place = atomicAdd(&count, 1);
    if (place < listed_rows) list[place] = static_cast<std::int32_t>(i);
  }
  is_wrong = __syncthreads_or(is_wrong) != 0;
  return {count, list, is_wrong};
}

// A token by a thread block, or every so many; all of a row's columns, 8 a thread at a time.
template <class T>
__global__ void __launch_bounds__(combine_threads)
    combine_kernel(const __grid_constant__ CombineParameters p) {
  __shared__ std::int32_t sorted[listed_rows], found[listed_rows];
  __shared__ int number_found;
  const bool is_listed = p.lists != nullptr;
  if (is_listed || !p.rows_are_complete) wait_for_kernels_ahead();
  for (std::int64_t token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    __syncthreads();  // the list of the token before has been read
    const TokenRows rows =
        is_listed ? listed_of(p, token) : look_for(p, token, found, number_found);
    const int count = rows.count, listed = min(count, listed_rows);
    if (threadIdx.x < listed) {
      const std::int32_t own = rows.list[threadIdx.x];
      int rank = 0;
      for (int i = 0; i < listed; ++i) rank += rows.list[i] < own ? 1 : 0;
      sorted[rank] = own;
    }
    __syncthreads();
    wait_for_kernels_ahead();
    let_dependents_start();
    constexpr int step = combine_threads * 8;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * step; first < p.columns;
         first += static_cast<std::int64_t>(gridDim.y) * step) {
      const std::int64_t column = first + threadIdx.x * 8;
      CombinedOctet<T> octet{p, column, p.columns - column};
      add_rows(octet, token, count, sorted);
      if (rows.is_wrong) {
#pragma unroll
        for (float& sum : octet.sums) sum = __int_as_float(0x7FC00000);
      }
      octet.store(token);
    }
  }
}

}  // namespace mxkern::kernels
