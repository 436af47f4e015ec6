// mxkern/kernels/quantize/dense_rows.cuh: blocks along the rows of a dense tensor, in memory's
// order.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/rows.cuh"

namespace mxkern::kernels {

// Elements, codes and row-major scales without gaps: all rows are one line. A warp takes a stretch
// of 1024 elements of it, four octets a lane, 256 elements apart.
struct QuantizeDenseParameters {
  const void* x;
  std::uint8_t* codes;
  std::uint8_t* scales;
  float* tensor_scale;  // NVFP4: written by the first thread; nothing that `options` reads
  OctetOptions options;
  std::int64_t stretches;
  bool backwards;  // the last stretch first: it is what the pass before left in the cache
};

inline constexpr int stretch_step = 32;  // octets from one of a lane to its next
inline constexpr int stretch_elements = 8 * stretch_step * rows_per_thread;
inline constexpr int stretches_at_once = row_threads / 32;  // of a thread block

// One lane of a warp.
template <class S, class T>
struct QuantizeDense {
  using Octets = RawOctet<T>[rows_per_thread];

  const QuantizeDenseParameters& p;

  __device__ __forceinline__ std::int64_t first_octet(std::int64_t stretch) const {
    return stretch * (stretch_elements / 8) + threadIdx.x % 32;
  }

  __device__ __forceinline__ const T* octet(std::int64_t stretch, int i) const {
    return static_cast<const T*>(p.x) + (first_octet(stretch) + i * stretch_step) * 8;
  }

  // Asks for what load will read: see QuantizeRows::fetch.
  __device__ __forceinline__ void fetch(std::int64_t stretch) const {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) fetch_octet(octet(stretch, i));
  }

  __device__ __forceinline__ void load(std::int64_t stretch, Octets& raw) const {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) raw[i] = load_octet(octet(stretch, i));
  }

  // `scale_of` is `scaler`, or what stands for it.
  template <class ScaleOf>
  __device__ __forceinline__ void quantize(std::int64_t stretch, const Octets& raw,
                                           const BlockScaler<S>& scaler,
                                           const ScaleOf& scale_of) const {
    constexpr int lanes = SharedScales<S>::lanes, octet_bytes = S::Format::bits;
    const std::int64_t first = first_octet(stretch);
    FourWholeRows out = {};
    out.codes = p.codes + whole_codes_start<octet_bytes>(first * octet_bytes);
    out.code_step = stretch_step * octet_bytes;
    out.scale_step = stretch_step / lanes;
    out.scales = p.scales + first / lanes + SharedScales<S>::row(0) * out.scale_step;
    PackedAmax<T> octets[rows_per_thread];
    packed_amax(raw, octets);
    RandomWords<Rounding::nearest> no_words(p.options.keys, p.options.offset);
    quantize_four_whole_rows<S, T, Rounding::nearest>(raw, SharedScales<S>(octets, scale_of),
                                                      scaler, no_words, out);
  }
};

template <class S, class T, bool Stays>
inline constexpr int dense_blocks =
    rows_blocks<S, T, Rounding::nearest, Stays ? RowsWork::whole : RowsWork::once>;

// Plain quantization to nearest of whole stretches, with vector loads and stores. Thread blocks
// that stay have the loads of their next stretches ahead of the work; others have one a warp.
template <class S, class T, bool Stays>
__global__ void __launch_bounds__(row_threads, (dense_blocks<S, T, Stays>))
    quantize_dense_kernel(const __grid_constant__ QuantizeDenseParameters p) {
  const QuantizeDense<S, T> lane{p};
  const auto stretch_of = [&](std::int64_t i) { return p.backwards ? p.stretches - 1 - i : i; };
  std::int64_t i = std::int64_t{blockIdx.x} * stretches_at_once + threadIdx.x / 32;
  if (Stays && i < p.stretches) lane.fetch(stretch_of(i));
  wait_for_kernels_ahead();
  let_dependents_start();
  RawOctet<T> raw[rows_per_thread];
  if (i < p.stretches) lane.load(stretch_of(i), raw);
  if constexpr (Stays) {
    const BlockScaler<S> scaler = block_scaler<S>(p.options, p.tensor_scale);
    if constexpr (S::has_tensor_scale) __syncthreads();
    while (i < p.stretches) {
      const std::int64_t stretch = stretch_of(i);
      i += std::int64_t{gridDim.x} * stretches_at_once;
      RawOctet<T> ahead[rows_per_thread];
      if (i < p.stretches) lane.load(stretch_of(i), ahead);
      lane.quantize(stretch, raw, scaler, scaler);
#pragma unroll
      for (int k = 0; k < rows_per_thread; ++k) raw[k] = ahead[k];
    }
  } else {
    if (i >= p.stretches) return;
    const BlockScaler<S> scaler = lone_scaler<S>(p.options, p.tensor_scale);
    lane.quantize(stretch_of(i), raw, scaler, WithoutTable<S>{scaler});
  }
}

}  // namespace mxkern::kernels
