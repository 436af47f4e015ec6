// mxkern/kernels/operands/swiglu_folded_rows.cuh: SwiGLU of rows, quantized and folded as they are
// made.
#pragma once

#include <cstdint>

#include "mxkern/kernels/experts/swiglu.cuh"
#include "mxkern/kernels/operands/quantize_folded_rows.cuh"

namespace mxkern::kernels {

// `columns` of the result; x has twice as many, which start on 16 bytes.
struct SwigluFoldedRowsParameters : QuantizeFoldedRowsParameters {
  float alpha, limit, offset;
};

// A row of results from a lane's first column on.
template <class Element, bool Interleaved>
struct SwigluRow {
  using T = Element;
  const T* x;
  const SwigluFoldedRowsParameters& p;

  __device__ __forceinline__ SwigluRow(const SwigluFoldedRowsParameters& parameters,
                                       std::int64_t row, int column)
      : x(static_cast<const T*>(parameters.x) + row * parameters.row_stride +
          (Interleaved ? 2 * column : column)),
        p(parameters) {}

  __device__ __forceinline__ RawOctet<T> octet(int at) const {
    const T* const one = x + (Interleaved ? 2 * at : at);
    const T* const other = one + (Interleaved ? 8 : p.columns);
    return swiglu_octet<T, Interleaved>(load_octet(one), load_octet(other), p.alpha, p.limit,
                                        p.offset);
  }
};

template <class T, bool Interleaved, int Octets, int MostWarps>
__global__ void __launch_bounds__(32 * MostWarps, all_rows_warps / MostWarps)
    swiglu_folded_rows_kernel(const __grid_constant__ SwigluFoldedRowsParameters p) {
#if MXKERN_HAS_CVT_E4M3
  quantize_folded_rows<SwigluRow<T, Interleaved>, Octets, MostWarps>(p);
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
