// mxkern/kernels/quantize/tensor_amax.cuh: the largest finite magnitude of a tensor.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/block_amax.cuh"
#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/device/cluster_max.cuh"
#include "mxkern/kernels/quantize/octet.cuh"
#include "mxkern/kernels/quantize/tile/phases.cuh"

namespace mxkern::kernels {

// `lines` runs of `length` adjacent elements each: the rows of x, or all of a dense x as one run.
struct TensorAmaxParameters {
  const void* x;
  std::int64_t batch, lines, length;
  std::int64_t batch_stride, line_stride;
  float* amax;
  int hadamard_size;  // of the transform along the lines whose result is looked at, or 0
  SignMask hadamard_signs;
  bool vector_loads;
  bool fetches;  // the first loads are asked for while the kernel ahead still runs
};

inline constexpr int amax_threads = 256;
inline constexpr int amax_depth = 4;    // octets of a thread in flight
inline constexpr int amax_cluster = 8;  // thread blocks of the only one, for small tensors
// Thread blocks a multiprocessor: what the registers of the octets in flight leave room for, and on
// GPUs for graphics its 1536 threads.
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ >= 1200 || (__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900))
inline constexpr int amax_blocks_of_halves = 6;
#else
inline constexpr int amax_blocks_of_halves = 7;
#endif
template <class T>
inline constexpr int amax_blocks = sizeof(T) == 4 ? 4 : amax_blocks_of_halves;
inline constexpr int amax_chunk = amax_threads * amax_depth;

// The amax of an octet without what is not finite. That is rare: look again only where it occurs.
template <class T>
__device__ __forceinline__ std::uint32_t finite_amax(std::uint32_t amax, const RawOctet<T>& raw) {
  if (float32::is_finite(amax)) return amax;
  float v[8];
  unpack(raw, v);
  std::uint32_t finite = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t magnitude = bits_of(v[i]) & float32::magnitude_mask;
    finite = max(finite, float32::is_finite(magnitude) ? magnitude : 0u);
  }
  return finite;
}

// The maximum over the thread block; its first thread gets it.
__device__ __forceinline__ std::uint32_t block_maximum(std::uint32_t amax) {
  amax = __reduce_max_sync(full_warp, amax);
  __shared__ std::uint32_t warps[amax_threads / 32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = amax;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < amax_threads / 32; ++i) amax = max(amax, warps[i]);
  return amax;
}

// The maximum over the thread block, merged into memory: magnitudes order like their bits.
__device__ __forceinline__ void merge_amax(std::uint32_t amax, float* to) {
  amax = block_maximum(amax);
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned*>(to), amax);
}

// The maximum over the thread blocks of the one cluster that there is, to memory. All of them have
// started.
__device__ __forceinline__ void store_cluster_amax(std::uint32_t amax, float* to) {
  __shared__ std::uint32_t maxima[amax_cluster];
  amax = block_maximum(amax);
  if (threadIdx.x == 0) store_in_first(&maxima[rank_in_cluster()], amax);
  synchronize_cluster();
  if (rank_in_cluster() != 0 || threadIdx.x != 0) return;
#pragma unroll
  for (int i = 0; i < amax_cluster; ++i) amax = max(amax, maxima[i]);
  *to = float_of(amax);
}

// What the amax of many thread blocks starts from. With `early`, the amax kernel behind it, which
// waits for this one before it reads, may start at once; otherwise as soon as x is there. `other`
// may be null.
static __global__ void clear_amax_kernel(float* amax, float* other, bool early) {
  if (early) let_dependents_start();
  wait_for_kernels_ahead();
  if (!early) let_dependents_start();
  *amax = 0.0f;
  if (other != nullptr) *other = 0.0f;
}

// Has the second-level cache read what a thread will first.
template <class T>
__device__ __forceinline__ void fetch_amax_chunk(const TensorAmaxParameters& p) {
  if (!p.vector_loads || blockIdx.z != 0) return;
  const T* x = static_cast<const T*>(p.x) + blockIdx.y * p.line_stride;
#pragma unroll
  for (int i = 0; i < amax_depth; ++i) {
    const std::int64_t octet =
        blockIdx.x * std::int64_t{amax_chunk} + i * amax_threads + threadIdx.x;
    if (octet * 8 < p.length) fetch_octet(x + octet * 8);
  }
}

// The grid has thread blocks along a line (x), lines (y) and matrices (z); all of them wrap around.
// One cluster stores the amax. More thread blocks merge theirs into what clear_amax_kernel, the
// kernel ahead, has left: unless they fetch, x is complete before this one starts; the zero is not.
template <class T, bool OneCluster>
__global__ void __launch_bounds__(amax_threads, amax_blocks<T>)
    tensor_amax_kernel(const __grid_constant__ TensorAmaxParameters p) {
  const std::int64_t octets = ceil_div(p.length, 8);
  std::uint32_t amax = 0;
  bool waits = true;
  const auto wait = [&] {
    wait_for_kernels_ahead();
    let_dependents_start();
    waits = false;
  };
  if (p.fetches) fetch_amax_chunk<T>(p);
  if constexpr (OneCluster) synchronize_cluster();
  if (p.fetches) wait();
  for (std::int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    for (std::int64_t line = blockIdx.y; line < p.lines; line += gridDim.y) {
      const T* x = static_cast<const T*>(p.x) + batch * p.batch_stride + line * p.line_stride;
      for (std::int64_t start = blockIdx.x * std::int64_t{amax_chunk}; start < octets;
           start += gridDim.x * std::int64_t{amax_chunk}) {
        RawOctet<T> raw[amax_depth];
#pragma unroll
        for (int i = 0; i < amax_depth; ++i) {
          const std::int64_t element = (start + i * amax_threads + threadIdx.x) * 8;
          raw[i] = load_guarded(x + element, p.length - element, p.vector_loads);
        }
        if (waits) wait();
#pragma unroll
        for (int i = 0; i < amax_depth; ++i) {
          if (p.hadamard_size != 0) {
            float v[8];
            unpack(raw[i], v);
            hadamard_octet<T>(v, threadIdx.x, p.hadamard_size, p.hadamard_signs, false);
            raw[i] = pack<T>(v);
          }
          amax = max(amax, finite_amax(octet_amax(raw[i]), raw[i]));
        }
      }
    }
  }
  if (waits) wait();
  if constexpr (OneCluster) {
    store_cluster_amax(amax, p.amax);
  } else {
    merge_amax(amax, p.amax);
  }
}

// The amax of what a Hadamard transform along the columns makes of x.
template <class T>
__global__ void __launch_bounds__(tile_threads)
    hadamard_columns_amax_kernel(const __grid_constant__ QuantizeTileParameters p, float* to) {
  extern __shared__ __align__(128) unsigned char shared[];
  wait_for_kernels_ahead();
  let_dependents_start();
  T* elements = reinterpret_cast<T*>(shared);
  float* floats = reinterpret_cast<float*>(elements + tile_extent * tile_extent);
  std::uint32_t amax = 0;
  for (std::int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    for (std::int64_t step = blockIdx.y; step < ceil_div(p.rows, tile_extent); step += gridDim.y) {
      const TilePosition at(p, batch, step, blockIdx.x);
      begin_tile(p, at, elements);
      finish_tile();
      hadamard_columns(elements, floats, p.along_columns.options.hadamard_size,
                       p.along_columns.options.hadamard_signs, at.rows_left);
      __syncthreads();
      for (int i = threadIdx.x; i < tile_extent * tile_octets; i += tile_threads) {
        const RawOctet<T> raw = shared_octet(elements + i * 8);
        amax = max(amax, finite_amax(octet_amax(raw), raw));
      }
      __syncthreads();
    }
  }
  merge_amax(amax, to);
}

}  // namespace mxkern::kernels
